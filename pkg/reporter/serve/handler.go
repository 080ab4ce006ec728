package serve

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newHandler serves the View that view returns. trusted reports whether a request may
// read more than the liveness of the process.
func newHandler(view func() View, metrics prometheus.Gatherer, trusted func(*http.Request) bool,
	now func() time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		write(w, r, "healthz", view().healthChecks(), http.StatusOK, !trusted(r))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		write(w, r, "readyz", view().readyChecks(), http.StatusServiceUnavailable, !trusted(r))
	})

	closed := http.NewServeMux()
	closed.HandleFunc("GET /kms-providers", func(w http.ResponseWriter, r *http.Request) {
		write(w, r, "kms-providers", view().pluginChecks(now()), http.StatusInternalServerError, false)
	})
	closed.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		DisableCompression:  true, // for a few kilobytes a compressor costs a megabyte
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !trusted(r) {
			http.Error(w, "a client certificate is needed here", http.StatusUnauthorized)
			return
		}
		closed.ServeHTTP(w, r)
	})
	return mux
}
