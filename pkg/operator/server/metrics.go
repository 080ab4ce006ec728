package server

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ListenTLS opens an address for HTTPS. certDir has tls.crt and tls.key, or is empty
// for a self-signed certificate. profile is called at each handshake.
func ListenTLS(address, certDir string, profile func() *tls.Config) (net.Listener, error) {
	certificate, err := newCertificate(certDir)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, // of the profile's, see GetConfigForClient
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := profile().Clone()
			c.GetCertificate = certificate.get
			c.NextProtos = []string{"http/1.1"}
			return c, nil
		},
	}), nil
}

// Metrics serves /metrics to clients that access lets through.
func Metrics(registry prometheus.Gatherer, access *Access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return access.protect(mux)
}
