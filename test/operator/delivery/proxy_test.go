//go:build integration

package delivery

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// faultyProxy is a proxy between the operator and the API server. It fails some requests, before or after the API
// server serves them.
type faultyProxy struct {
	*httptest.Server
	errors   atomic.Int64   // percent
	away     atomic.Bool    // like a load balancer without a healthy server
	refused  atomic.Bool    // status 403 for the Secrets of kube-apiserver's revisions
	clocks   fixture.Clocks // of the API servers
	loses    atomic.Bool    // drops the answer of one request every 15 s
	lost     atomic.Int64   // when it did so last
	versions atomic.Int64   // added to the resource versions of kube-apiserver's operator resource
}

var version = regexp.MustCompile(`(resourceVersion(?:=|":"|","value":"))([1-9][0-9]*)`)

// shiftVersions adds to the resource versions in content.
func shiftVersions(content []byte, by int64) []byte {
	return version.ReplaceAllFunc(content, func(text []byte) []byte {
		parts := version.FindSubmatch(text)
		n, _ := strconv.ParseInt(string(parts[2]), 10, 64)
		return strconv.AppendInt(parts[1], n+by, 10)
	})
}

// answer shifts the times and versions in an answer.
func (p *faultyProxy) answer(answer *http.Response) error {
	if restored(answer.Request) {
		fixture.Rewrite(answer, func(line []byte) []byte { return shiftVersions(line, p.versions.Load()) })
	}
	return p.clocks.Answer(answer)
}

// request shifts the times and versions in a request back.
func (p *faultyProxy) request(r *http.Request) {
	p.clocks.Request(r)
	if body, err := io.ReadAll(r.Body); err == nil && restored(r) {
		r.URL.RawQuery = string(shiftVersions([]byte(r.URL.RawQuery), -p.versions.Load()))
		fixture.Replace(r, shiftVersions(body, -p.versions.Load()))
	} else {
		fixture.Replace(r, body)
	}
}

func restored(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/"+apiservers.Kube.Resource)
}

// loseNow reports whether this request must get no answer.
func (p *faultyProxy) loseNow() bool {
	now, last := time.Now().UnixNano(), p.lost.Load()
	return p.loses.Load() && now-last > int64(15*time.Second) && p.lost.CompareAndSwap(last, now)
}

// readsRevision reports whether a request lists or watches the encryption config of a revision.
func readsRevision(r *http.Request) bool {
	return r.URL.Path == "/api/v1/namespaces/"+apiservers.Kube.Namespace+"/secrets" &&
		strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="+apiservers.EncryptionSecret+"-")
}

func newFaultyProxy(t *testing.T, seed uint64) *faultyProxy {
	t.Helper()
	p := &faultyProxy{}
	p.versions.Store(1_000_000)
	var count atomic.Uint64
	p.Server = fixture.StartProxy(t, p.answer, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if p.away.Load() {
				http.Error(w, "no server is available", http.StatusServiceUnavailable)
				return
			}
			if p.refused.Load() && readsRevision(r) {
				http.Error(w, "refused", http.StatusForbidden)
				return
			}
			p.request(r)
			random := rand.New(rand.NewPCG(seed, count.Add(1)))
			lose := r.URL.Query().Get("watch") != "true" && p.loseNow()
			if !lose && (r.URL.Query().Get("watch") == "true" || random.Int64N(100) >= p.errors.Load()) {
				forward.ServeHTTP(w, r)
				return
			}
			how := random.IntN(3)
			if lose {
				how = 2
			}
			switch how {
			case 0:
				http.Error(w, "injected", http.StatusInternalServerError)
			case 1:
				w.Header().Set("Retry-After", "1")
				http.Error(w, "injected", http.StatusServiceUnavailable)
			case 2: // the API server serves the request, and the answer is lost
				forward.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
				panic(http.ErrAbortHandler)
			}
		}
	})
	return p
}
