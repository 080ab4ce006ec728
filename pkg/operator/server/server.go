package server

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Serve serves HTTP on a listener until ctx ends, and closes it. An error means that
// connections can no longer be accepted.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second, // of a TLS handshake too
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // anyone who can connect could fill the log
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		_ = server.Close() // the error is about connections that are closed already
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-closed
	return nil
}

// Health serves /healthz, always 200, and /readyz, 200 or 500, as ready returns nil or
// an error. The error is not served: the log has it.
func Health(ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready() != nil {
			http.Error(w, "not ready: no configuration is in force; see the operator's log", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	return mux
}
