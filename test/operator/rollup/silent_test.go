//go:build integration

package rollup

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

var silentFor = flag.Duration("silent-for", 0, "how long one node is silent while requests are lost; 0: the test is skipped")

// losing returns an operator that gets no answer to each one-th request.
func losing(t *testing.T, one int64) (op *fixture.Operator, lost *atomic.Int64) {
	t.Helper()
	var count atomic.Int64
	lost = &atomic.Int64{}
	server := fixture.StartProxy(t, nil, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "true" || count.Add(1)%one != 0 {
				forward.ServeHTTP(w, r)
				return
			}
			lost.Add(1)
			forward.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
			panic(http.ErrAbortHandler)
		}
	})
	op = fixture.NewOperator(t)
	op.Server = server.URL
	return op, lost
}

// verdicts compares KMSPluginsDegraded with the reports of nodes.
type verdicts struct {
	nodes []string

	mu      sync.Mutex
	differs time.Time // since when they differ; zero: they agree
	changes int
	worst   time.Duration
	agreed  bool // KMSWriteKeyAgreed was True at least once
}

func (v *verdicts) see(at time.Time, r *operatorstatus.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	unhealthy := false
	for i := range r.Reports {
		for _, e := range r.Reports[i].Entries {
			unhealthy = unhealthy || r.Reports[i].Node != v.nodes[0] && e.Status == contract.Unhealthy
		}
	}
	switch same := unhealthy == (r.Conditions[contract.PluginsDegraded].Status == operatorstatus.True); {
	case !same && v.differs.IsZero():
		v.differs = at
	case same && !v.differs.IsZero():
		v.worst, v.changes = max(v.worst, at.Sub(v.differs)), v.changes+1
		v.differs = time.Time{}
	}
	v.agreed = v.agreed || r.Conditions[contract.WriteKeyAgreed].Status == operatorstatus.True
}

// The reporter of one node hangs, and requests are lost. The operator must write the verdict on the
// other nodes within an interval, and must not claim agreement without that node.
func TestSilentNodeAndLostRequestsDelayNoVerdictOnOthers(t *testing.T) {
	if *silentFor == 0 {
		t.Skip("takes as long as -silent-for says")
	}
	const interval = 10 * time.Second
	op, lost := losing(t, 60)
	reporters := fixture.StartReporting(t, op, nil, interval.String())
	reporters[0].Signal(t, syscall.SIGSTOP)
	time.Sleep((contract.StaleIntervals+1)*interval + time.Minute) // the lost requests excuse it for a minute
	v := &verdicts{nodes: fixture.NodeNames}
	fixture.WatchResource(t, apiservers.Kube, v.see)
	for i, end := 0, time.Now().Add(*silentFor); time.Now().Before(end); i++ {
		plugin := reporters[1+i%2].Plugin
		must.Succeed(t, plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{fmt.Sprint("sealed ", i)}}))
		time.Sleep(2 * interval)
		must.Succeed(t, plugin.ClearFaults())
		time.Sleep(2 * interval)
		// A change of the file causes more lists and writes.
		op.Configure(fixture.KubeAPIServer() + fmt.Sprintf("# %d\n", i))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	t.Logf("%s: %d changes, the slowest verdict after %s, %d requests without an answer", *silentFor, v.changes,
		v.worst.Round(time.Millisecond), lost.Load())
	if v.worst > interval || !v.differs.IsZero() || v.agreed || v.changes == 0 {
		t.Errorf("late: %s, still differs since %s, agreed %t", v.worst, v.differs, v.agreed)
	}
}
