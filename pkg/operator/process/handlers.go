package process

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsHandler serves /metrics to clients that access lets through.
func metricsHandler(registry prometheus.Gatherer, clients *access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return clients.protect(mux)
}

// healthHandler serves /healthz, always 200, and /readyz, 200 or 500, as ready returns nil or
// an error. The error is not served: the log has it.
func healthHandler(ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready() != nil {
			http.Error(w, "not ready: no configuration is active; see the operator's log", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	return mux
}
