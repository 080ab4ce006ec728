//go:build integration

package delivery

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// faultyProxy is between the operator and the API server, and fails some of
// the requests fail: before they are served, or after.
type faultyProxy struct {
	*httptest.Server
	ca     []byte
	errors atomic.Int64 // percent
	away   atomic.Bool  // like a load balancer without a healthy server
	// refused is whether the Secrets of kube-apiserver's revisions may not be read.
	refused atomic.Bool
}

var revisionSecrets = "/api/v1/namespaces/" + apiservers.Kube.Namespace + "/secrets/" + apiservers.EncryptionSecret + "-"

func newFaultyProxy(t *testing.T, seed uint64) *faultyProxy {
	t.Helper()
	p := &faultyProxy{}
	var count atomic.Uint64
	p.Server, p.ca = fixture.StartProxy(t, nil, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if p.away.Load() {
				http.Error(w, "no server is available", http.StatusServiceUnavailable)
				return
			}
			if p.refused.Load() && strings.HasPrefix(r.URL.Path, revisionSecrets) {
				http.Error(w, "refused", http.StatusForbidden)
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
				forward.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
				panic(http.ErrAbortHandler)
			}
		}
	})
	return p
}
