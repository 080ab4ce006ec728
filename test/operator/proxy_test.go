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

// faultyProxy stands between the operator and the API server, and lets some of
// the requests fail: before they are served, or after.
type faultyProxy struct {
	*httptest.Server
	ca     []byte
	errors atomic.Int64 // percent
}

func newFaultyProxy(t *testing.T, seed uint64) *faultyProxy {
	t.Helper()
	target, err := url.Parse(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := &faultyProxy{}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cluster.ServingCA().Pool()}}
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	var count atomic.Uint64
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		case 2: // it is done, and nobody hears of it
			forward.ServeHTTP(&deaf{header: http.Header{}}, r.WithContext(context.WithoutCancel(r.Context())))
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(p.Close)
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	return p
}

// deaf hears no answer.
type deaf struct {
	header http.Header
	bytes.Buffer
}

func (d *deaf) Header() http.Header { return d.header }
func (d *deaf) WriteHeader(int)     {}
