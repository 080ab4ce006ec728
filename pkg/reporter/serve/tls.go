package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/serving"
)

// settings returns nil if TLS is not served.
func (s *Server) settings() *v1alpha1.ServingTLS {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == nil {
		return nil
	}
	return s.config.TLS
}

// handshake returns the settings of a handshake: those of the file, with the certificate and
// the client CAs as they are now.
func (s *Server) handshake(*tls.ClientHelloInfo) (*tls.Config, error) {
	settings := s.settings()
	if settings == nil {
		return nil, errors.New("no longer served by TLS")
	}
	pair, err := s.pair.Read(settings.CertFile, settings.KeyFile)
	if err != nil {
		return nil, err
	}
	config := serving.TLSConfig(settings.MinVersion, settings.CipherSuites)
	config.Certificates = []tls.Certificate{*pair}
	// With a ticket a client could resume a session that an earlier CA trusted.
	config.SessionTicketsDisabled = true
	if pool := s.clientCAs(settings.ClientCAFile); pool != nil {
		config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, pool
	}
	return config, nil
}

// trusted reports whether a request may read everything: if client certificates are
// configured, only a client with a certificate of a trusted CA may.
func (s *Server) trusted(r *http.Request) bool {
	settings := s.settings()
	if settings == nil || r.TLS == nil {
		return false
	}
	return settings.ClientCAFile == "" || len(r.TLS.VerifiedChains) > 0
}

// clientCAs returns nil if no client is trusted: if no file is configured, or while it
// cannot be used.
func (s *Server) clientCAs(path string) *x509.CertPool {
	if path == "" {
		return nil
	}
	content, pool := filewatch.Read(path, serving.MaxFile), x509.NewCertPool()
	err := content.Err
	if err == nil && !pool.AppendCertsFromPEM(content.Data) {
		err = fmt.Errorf("%s holds no PEM certificate", path)
	}
	s.caProblem.Note(err, "Cannot use the client CAs; no client is trusted without them")
	if err != nil {
		return nil
	}
	return pool
}
