//go:build integration

package rollup

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The watch of the reports silently shows nothing more, while requests are answered: its API server lost the network or
// etcd. The operator must not report reporters as stale, and must find a fault.
func TestWatchThatShowsNothingIsNoSilenceOfReporters(t *testing.T) {
	const toDie, died int32 = 1, 2
	var watch atomic.Int32 // 0: alive
	ended := make(chan struct{})
	server := fixture.StartProxy(t, func(answer *http.Response) error {
		r := answer.Request
		if r.URL.Query().Get("watch") != "true" || !strings.HasSuffix(r.URL.Path, "/"+apiservers.Kube.Resource) {
			return nil
		}
		fixture.Rewrite(answer, func(line []byte) []byte {
			if watch.CompareAndSwap(toDie, died) {
				<-ended
			}
			return line
		})
		return nil
	}, func(forward http.Handler) http.HandlerFunc { return forward.ServeHTTP })
	t.Cleanup(func() { close(ended) })
	op := fixture.NewOperator(t)
	op.Server = server.URL
	reporters := fixture.StartReporting(t, op, nil, "1s")
	fixture.AwaitHealthy(t)
	seen := fixture.RecordConditions(t, apiservers.Kube)
	watch.Store(toDie)
	fixture.AwaitEqual(t, "the watch shows nothing more", died, watch.Load)
	time.Sleep(2 * contract.StaleIntervals * time.Second) // twice the time after which a report is stale
	must.Succeed(t, reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"sealed"}}))
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorstatus.True, contract.PluginUnhealthy)
	must.Succeed(t, seen.None("KMSPluginsDegraded Unknown", "KMSHealthReporting False"))
	must.Succeed(t, reporters[1].Plugin.ClearFaults())
	fixture.AwaitHealthy(t)
}
