package serve

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/serving"
)

// retry is the wait before an address is opened again, after listen or accept failed.
const retry = 5 * time.Second

// Server serves on the address of the latest configuration.
type Server struct {
	view    func() View
	metrics prometheus.Gatherer

	mu      sync.Mutex
	config  *v1alpha1.Serving // nil: off
	changed chan struct{}     // closed when another address is configured

	pair      serving.KeyPair
	problem   serving.Problem // of the address
	caProblem serving.Problem
}

// New returns a Server that serves the View that view returns, and the metrics.
func New(view func() View, metrics prometheus.Gatherer) *Server {
	return &Server{view: view, metrics: metrics, changed: make(chan struct{})}
}

// Apply applies a configuration; nil ends serving. TLS settings apply to the next
// connection, and only a new address, or TLS in place of none, closes the old one. It never
// waits.
func (s *Server) Apply(config *v1alpha1.Serving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sameAddress(s.config, config) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.config = config
}

func sameAddress(a, b *v1alpha1.Serving) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Address == b.Address && (a.TLS == nil) == (b.TLS == nil)
}

func (s *Server) current() (config *v1alpha1.Serving, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config, s.changed
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) {
	for ctx.Err() == nil {
		config, changed := s.current()
		address, end := context.WithCancel(ctx)
		go func() {
			defer end()
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}()
		s.serve(address, config)
		<-address.Done()
	}
}

// serve serves on one address until ctx ends. Failures are logged once, and retried.
func (s *Server) serve(ctx context.Context, config *v1alpha1.Serving) {
	for config != nil && ctx.Err() == nil {
		err := s.listen(ctx, config)
		s.problem.Note(err, "Cannot serve; trying again", "address", config.Address, "after", retry)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// listen returns nil at the end of ctx, else why connections cannot be accepted.
func (s *Server) listen(ctx context.Context, config *v1alpha1.Serving) error {
	handshake, trusted := s.handshake, s.trusted
	if config.TLS == nil {
		handshake, trusted = nil, func(*http.Request) bool { return true }
	}
	listener, err := serving.Listen(config.Address, handshake)
	if err != nil {
		return err
	}
	s.problem.Note(nil, "")
	klog.InfoS("Serving", "address", config.Address, "tls", config.TLS != nil)
	return serving.Serve(ctx, listener, newHandler(s.view, s.metrics, trusted, time.Now))
}
