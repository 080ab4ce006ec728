// Package serve serves a reporter's state over HTTP: /healthz, /readyz, /kms-providers with
// a check per plugin, and /metrics.
//
// It is read-only, and no failure ends it. If the key pair is invalid, the last valid one is
// used; if the client CAs are invalid, no client is trusted.
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

	mu     sync.Mutex
	config *v1alpha1.Serving // nil: off
	stop   context.CancelFunc
	ended  chan struct{} // closed when nothing is served any more

	pair      serving.KeyPair
	problem   serving.Problem // of the address
	caProblem serving.Problem
}

// New returns a Server that serves the View that view returns, and the metrics.
func New(view func() View, metrics prometheus.Gatherer) *Server {
	s := &Server{view: view, metrics: metrics, stop: func() {}, ended: make(chan struct{})}
	close(s.ended)
	return s
}

// Apply serves by a configuration until ctx ends; nil ends serving. TLS settings apply to the next
// connection, and only a new address, or TLS in place of none, closes the old one. It never
// waits.
func (s *Server) Apply(ctx context.Context, config *v1alpha1.Serving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := sameAddress(s.config, config)
	if s.config = config; same {
		return
	}
	s.stop()
	ctx, s.stop = context.WithCancel(ctx)
	before, ended := s.ended, make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		<-before // the port may be the same
		s.serve(ctx, config)
	}()
}

func sameAddress(a, b *v1alpha1.Serving) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Address == b.Address && (a.TLS == nil) == (b.TLS == nil)
}

// Ended is closed when nothing is served any more, after the context of the last Apply has ended.
func (s *Server) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
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
