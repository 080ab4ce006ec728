package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// retry is how long to wait before an address that could not be had is tried
// again.
const retry = 5 * time.Second

// Server serves on the address of the latest configuration.
type Server struct {
	handler func(trusted func(*http.Request) bool) http.Handler
	failing prometheus.Gauge
	config  atomic.Pointer[v1alpha1.Serving]
	changed chan struct{}
	bound   atomic.Pointer[string]
}

// New returns a Server that shows what view returns and gathers metrics, to
// which it adds its own.
func New(view func() View, registry *prometheus.Registry) *Server {
	s := &Server{
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kms_health_reporter_serving_failed",
			Help: "1 while the configured address cannot be listened on.",
		}),
		changed: make(chan struct{}, 1),
	}
	registry.MustRegister(s.failing)
	s.handler = func(trusted func(*http.Request) bool) http.Handler {
		return newHandler(view, registry, trusted, time.Now)
	}
	return s
}

// Apply puts a configuration in force; nil ends serving. TLS settings apply to
// the next connection, and only a new address closes the old one. It never
// waits.
func (s *Server) Apply(config *v1alpha1.Serving) {
	s.config.Store(config)
	select {
	case s.changed <- struct{}{}:
	default: // told already
	}
}

// Address returns the address that is listened on, empty when there is none.
func (s *Server) Address() string {
	if a := s.bound.Load(); a != nil {
		return *a
	}
	return ""
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) {
	var running *listener
	var failing error
	defer func() { running.stop() }()
	for {
		config := s.config.Load()
		if running != nil && !running.serves(config) {
			running.stop()
			running = nil
			s.bound.Store(nil)
		}
		var again <-chan time.Time
		if running == nil && config != nil {
			var err error
			if running, err = s.listen(config); err != nil {
				again = time.After(retry)
				if failing == nil || failing.Error() != err.Error() {
					klog.ErrorS(err, "Cannot serve; trying again", "address", config.Address)
				}
				s.failing.Set(1)
			} else {
				klog.InfoS("Serving", "address", running.address, "tls", config.TLS != nil)
				s.failing.Set(0)
				s.bound.Store(&running.address)
			}
			failing = err
		}
		if config == nil {
			failing = nil
			s.failing.Set(0)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-again:
		}
	}
}

// listener is one open address.
type listener struct {
	wanted  string
	tls     bool
	address string
	http    *http.Server
	done    chan struct{}
}

// serves says whether the listener is what a configuration asks for. Files and
// settings of TLS do not matter here: each handshake looks at them anew.
func (l *listener) serves(config *v1alpha1.Serving) bool {
	return config != nil && l.wanted == config.Address && l.tls == (config.TLS != nil)
}

func (l *listener) stop() {
	if l == nil {
		return
	}
	_ = l.http.Close() // closes the socket; what it says of connections is of no use
	<-l.done
}

func (s *Server) listen(config *v1alpha1.Serving) (*listener, error) {
	socket, err := net.Listen("tcp", config.Address)
	if err != nil {
		return nil, err
	}
	l := &listener{wanted: config.Address, tls: config.TLS != nil, address: socket.Addr().String(), done: make(chan struct{})}
	trusted := func(*http.Request) bool { return true }
	if l.tls {
		settings := &tlsSettings{current: func() *v1alpha1.ServingTLS {
			if c := s.config.Load(); c != nil {
				return c.TLS
			}
			return nil
		}}
		socket = tls.NewListener(socket, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: settings.forClient})
		trusted = settings.trusted
	}
	l.http = &http.Server{
		Handler:           s.handler(trusted),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // anyone who can connect could fill the log
	}
	go func() {
		defer close(l.done)
		_ = l.http.Serve(socket) // ends when stopped
	}()
	return l, nil
}

// tlsSettings makes each handshake follow the configuration and the files as
// they are at that moment.
type tlsSettings struct {
	current func() *v1alpha1.ServingTLS

	mu      sync.Mutex
	failing string // why the last handshake had no settings; empty when it had
}

func (t *tlsSettings) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	settings := t.current()
	if settings == nil {
		return nil, fmt.Errorf("no longer served by TLS")
	}
	made, err := tlsConfig(settings)
	t.note(err)
	return made, err
}

// note logs a change between files that can be used and files that cannot, once.
func (t *tlsSettings) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	changed := text != t.failing
	t.failing = text
	t.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		klog.ErrorS(err, "TLS connections are refused until the files can be used")
	default:
		klog.InfoS("TLS connections are served again")
	}
}

// trusted: where client certificates are asked for, those who showed one.
func (t *tlsSettings) trusted(r *http.Request) bool {
	settings := t.current()
	if settings == nil || r.TLS == nil {
		return false
	}
	return settings.ClientCAFile == "" || len(r.TLS.VerifiedChains) > 0
}

// tlsConfig reads the files anew: handshakes are rare (a scrape keeps its
// connection), and what was rotated is in force at once.
func tlsConfig(settings *v1alpha1.ServingTLS) (*tls.Config, error) {
	cert, key := filewatch.Read(settings.CertFile, maxFile), filewatch.Read(settings.KeyFile, maxFile)
	if err := errors.Join(cert.Err, key.Err); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert.Data, key.Data)
	if err != nil {
		return nil, fmt.Errorf("serving certificate %s: %w", settings.CertFile, err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   settings.MinVersion.Version(),
		NextProtos:   []string{"http/1.1"},
		// A ticket would let a client resume what an older CA once trusted.
		SessionTicketsDisabled: true,
	}
	for _, name := range settings.CipherSuites {
		id, err := v1alpha1.CipherSuite(name)
		if err != nil {
			return nil, fmt.Errorf("cipher suite %s: %w", name, err)
		}
		config.CipherSuites = append(config.CipherSuites, id)
	}
	if settings.ClientCAFile == "" {
		return config, nil
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs, err = readCAs(settings.ClientCAFile)
	return config, err
}
