package serve

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// retry is the wait before an address is opened again, after listen or accept failed.
const retry = 5 * time.Second

// Server serves on the address of the latest configuration.
type Server struct {
	handler      func(trusted func(*http.Request) bool) http.Handler
	certificates *certificates
	failing      prometheus.Gauge
	restarts     prometheus.Counter
	config       atomic.Pointer[v1alpha1.Serving]
	changed      chan struct{}
	bound        atomic.Pointer[string]

	problem string // why listen failed last; used by Run only
}

// New returns a Server that serves the View that view returns, and the registry's
// metrics, to which it adds its own.
func New(view func() View, registry *prometheus.Registry) *Server {
	s := &Server{
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kms_health_reporter_serving_failed",
			Help: "1 while the configured address cannot be listened on.",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kms_health_reporter_serving_restarts_total",
			Help: "How often connections could no longer be accepted, so that the address was closed and opened again.",
		}),
		changed: make(chan struct{}, 1),
	}
	s.certificates = newCertificates(func() *v1alpha1.ServingTLS {
		if c := s.config.Load(); c != nil {
			return c.TLS
		}
		return nil
	})
	registry.MustRegister(s.failing, s.restarts, s.certificates)
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
	default: // Run has not handled the previous change yet
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
	var pause <-chan time.Time
	defer func() { running.stop() }()
	end := func() {
		running.stop()
		running = nil
		s.bound.Store(nil)
	}
	for {
		config := s.config.Load()
		if running != nil && !running.serves(config) {
			end()
		}
		switch {
		case config == nil:
			s.problem = ""
			s.failing.Set(0)
		case running == nil && pause == nil:
			if running = s.open(config); running == nil {
				pause = time.After(retry)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			pause = nil
			s.readFiles()
		case <-pause:
			pause = nil
		case <-running.failed():
			klog.ErrorS(running.err, "Cannot accept connections; opening the address again", "address", running.address, "after", retry)
			s.restarts.Inc()
			s.failing.Set(1)
			end()
			pause = time.After(retry)
		}
	}
}

// readFiles reads the files once before the first connection, so that the key pair is
// kept even if the files become invalid before that connection.
func (s *Server) readFiles() {
	if settings := s.certificates.current(); settings != nil {
		s.certificates.load(settings)
	}
}

// open returns nil if listen fails, and logs each reason once.
func (s *Server) open(config *v1alpha1.Serving) *listener {
	l, err := s.listen(config)
	if err != nil {
		if s.problem != err.Error() {
			klog.ErrorS(err, "Cannot serve; trying again", "address", config.Address)
		}
		s.problem = err.Error()
		s.failing.Set(1)
		return nil
	}
	klog.InfoS("Serving", "address", l.address, "tls", l.tls)
	s.problem = ""
	s.failing.Set(0)
	s.bound.Store(&l.address)
	return l
}
