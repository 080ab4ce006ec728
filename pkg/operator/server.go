package operator

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/util/cert"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/serving"
)

// metricsHandler serves /metrics to clients that access lets through.
func metricsHandler(registry prometheus.Gatherer, clients *access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return clients.protect(mux)
}

// healthHandler serves /healthz, always 200, and /readyz, 200 or 500.
func healthHandler(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ready: see the operator's log", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	return mux
}

// listenTLS opens an address for HTTPS. certDir contains tls.crt and tls.key, which must be valid at the start; if it
// is empty, a self-signed certificate is used. profile returns the TLS settings of each handshake.
func listenTLS(address, certDir string, profile func() *tls.Config) (net.Listener, error) {
	var files serving.KeyPair
	certificate := func() (*tls.Certificate, error) {
		return files.Read(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key"))
	}
	if certDir == "" {
		public, key, err := cert.GenerateSelfSignedCertKey(contract.OperatorName, nil, nil)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(public, key)
		certificate = func() (*tls.Certificate, error) { return &pair, err }
	}
	if _, err := certificate(); err != nil {
		return nil, err
	}
	return serving.Listen(address, func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := certificate()
		if err != nil {
			return nil, err
		}
		c := profile()
		c.Certificates = []tls.Certificate{*pair}
		return c, nil
	})
}
