// Package serve serves over HTTP on the address of a configuration, and answers checks in kube-apiserver's form.
//
// No failure ends it. If the key pair is invalid, the last valid one is used; if the client CAs are invalid, no client
// is trusted.
package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/serving"
)

const retry = 5 * time.Second // the wait before an address is opened again

// Server serves a handler by one configuration at a time.
type Server struct {
	Handler http.Handler
	serving sync.Mutex
}

// Serve serves by a configuration until ctx ends, and then closes all connections. It first waits for a former Serve,
// which may have the same port, to end. Failures are logged once, and retried.
func (s *Server) Serve(ctx context.Context, config *v1alpha1.Serving) {
	s.serving.Lock()
	defer s.serving.Unlock()
	a := &address{config: config}
	for ctx.Err() == nil {
		err := a.serve(ctx, s.Handler)
		a.problem.Note(err, "Cannot serve; trying again", "address", config.Address, "after", retry)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// address serves one configuration.
type address struct {
	config    *v1alpha1.Serving
	pair      serving.KeyPair
	problem   serving.Problem // of the address
	caProblem serving.Problem
}

// serve returns nil at the end of ctx, else why connections cannot be accepted.
func (a *address) serve(ctx context.Context, handler http.Handler) error {
	handshake := a.handshake
	if a.config.TLS == nil {
		handshake = nil
	}
	listener, err := serving.Listen(a.config.Address, handshake)
	if err != nil {
		return err
	}
	a.problem.Note(nil, "")
	klog.InfoS("Serving", "address", a.config.Address, "tls", a.config.TLS != nil)
	return serving.Serve(ctx, listener, handler)
}

// handshake returns the TLS settings for one connection, by the current certificate and client CA files.
func (a *address) handshake(*tls.ClientHelloInfo) (*tls.Config, error) {
	settings := a.config.TLS
	pair, err := a.pair.Read(settings.CertFile, settings.KeyFile)
	if err != nil {
		return nil, err
	}
	config := serving.TLSConfig(settings.MinVersion, settings.CipherSuites)
	config.Certificates = []tls.Certificate{*pair}
	// With a ticket a client could resume a session that an earlier CA trusted.
	config.SessionTicketsDisabled = true
	if settings.ClientCAFile != "" {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, a.clientCAs(settings.ClientCAFile)
	}
	return config, nil
}

// clientCAs returns the CAs in a file. While it cannot be used, the pool is empty, so no client is accepted.
func (a *address) clientCAs(path string) *x509.CertPool {
	content, pool := filewatch.Read(path, serving.MaxFile), x509.NewCertPool()
	err := content.Err
	if err == nil && !pool.AppendCertsFromPEM(content.Data) {
		err = fmt.Errorf("%s holds no PEM certificate", path)
	}
	a.caProblem.Note(err, "Cannot use the client CAs; no client is accepted without them")
	return pool
}
