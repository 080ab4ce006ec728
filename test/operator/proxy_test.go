//go:build integration

package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// faultyProxy is between the operator and the API server, and fails some of
// the requests fail: before they are served, or after.
type faultyProxy struct {
	*httptest.Server
	ca     []byte
	errors atomic.Int64 // percent
	away   atomic.Bool  // like a load balancer without a healthy server
}

// startProxy forwards to the API server what handle does not answer itself, until the
// test ends. An operator that uses it is to be made after it, and so ends before it.
func startProxy(t *testing.T, change func(*http.Response) error, handle func(forward http.Handler) http.HandlerFunc) (server *httptest.Server, ca []byte) {
	t.Helper()
	target, err := url.Parse(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1
	forward.ModifyResponse = change
	forward.Transport = &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: cluster.ServingCA().Pool()}}
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server = httptest.NewTLSServer(handle(forward))
	t.Cleanup(server.Close)
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func newFaultyProxy(t *testing.T, seed uint64) *faultyProxy {
	t.Helper()
	p := &faultyProxy{}
	var count atomic.Uint64
	p.Server, p.ca = startProxy(t, nil, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if p.away.Load() {
				http.Error(w, "no server is available", http.StatusServiceUnavailable)
				return
			}
			random := rand.New(rand.NewPCG(seed, count.Add(1)))
			if r.URL.Query().Get("watch") == "true" || random.Int64N(100) >= p.errors.Load() {
				forward.ServeHTTP(w, r)
				return
			}
			switch random.IntN(3) {
			case 0:
				http.Error(w, "injected", http.StatusInternalServerError)
			case 1:
				w.Header().Set("Retry-After", "1")
				http.Error(w, "injected", http.StatusServiceUnavailable)
			case 2: // it is done, and the answer is lost
				forward.ServeHTTP(&discardedAnswer{header: http.Header{}}, r.WithContext(context.WithoutCancel(r.Context())))
				panic(http.ErrAbortHandler)
			}
		}
	})
	return p
}

// discardedAnswer is an answer that reaches no client.
type discardedAnswer struct {
	header http.Header
	bytes.Buffer
}

func (d *discardedAnswer) Header() http.Header { return d.header }
func (d *discardedAnswer) WriteHeader(int)     {}
