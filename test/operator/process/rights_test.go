//go:build integration

package process

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kms-health/kms-health/test/operator/fixture"
)

// forbidden returns an operator whose requests with these verbs for these resources are forbidden until allow(true).
// nil verbs means all. "list" means get, list and watch.
func forbidden(t *testing.T, verbs []string, resources ...string) (op *fixture.Operator, allow func(bool)) {
	t.Helper()
	var allowed atomic.Bool
	server := fixture.StartProxy(t, nil, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			verb := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch"}[r.Method]
			if r.Method == http.MethodGet {
				verb = "list"
			}
			about := slices.ContainsFunc(strings.Split(r.URL.Path, "/"), func(s string) bool { return slices.Contains(resources, s) })
			if about && !allowed.Load() && (verbs == nil || slices.Contains(verbs, verb)) {
				http.Error(w, "forbidden by the test", http.StatusForbidden)
				return
			}
			forward.ServeHTTP(w, r)
		}
	})
	op = fixture.NewOperator(t, "--degraded-inertia=1s")
	op.Server = server.URL
	return op, func(now bool) {
		allowed.Store(now)
		server.CloseClientConnections() // otherwise a running watch continues without the right
	}
}
