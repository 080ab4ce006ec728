//go:build integration

package process

import (
	"net/http"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// Times in objects come from the clocks of nodes and of the API servers that wrote them. Date comes from the API server
// that answers. No verdict may depend on them.
func TestWrongClocksOfAPIServersAreNoVerdict(t *testing.T) {
	for name, by := range map[string]struct{ date, content time.Duration }{
		"those that write are ahead of the one that answers": {20 * time.Minute, 6 * time.Hour},
		"those that write are behind":                        {0, -6 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			var c fixture.Clocks
			c.Date.Store(int64(by.date))
			c.Content.Store(int64(by.content))
			server := fixture.StartProxy(t, c.Answer, func(forward http.Handler) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					c.Request(r)
					forward.ServeHTTP(w, r)
				}
			})
			op := fixture.NewOperator(t)
			op.Server = server.URL
			fixture.StartReporting(t, op, nil, fixture.Steady.String())
			seen := fixture.RecordConditions(t, apiservers.Kube)
			fixture.Never(t, 6*time.Second, func() error {
				return seen.None("KMSPluginsDegraded True", "KMSPluginsDegraded Unknown")
			})
		})
	}
}
