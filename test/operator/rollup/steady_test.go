//go:build integration

package rollup

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The operator must write nothing during this many syncs, with this time between them.
const (
	syncs = 3
	apart = 3 * time.Second
)

// Three reporters report on kube-apiserver, all reporters are deployed, and everything is healthy: the operator must
// write nothing. Then a plugin becomes unhealthy.
func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	op := fixture.NewOperator(t, "--leader-elect=true")
	fixture.DeliverAll(t, op)
	reporters := fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, fixture.Steady.String(), nil, nil)
	fixture.AwaitHealthy(t)
	if c := fixture.Resource(t, apiservers.Kube).Conditions[contract.WriteKeyAgreed]; !strings.Contains(c.Message, reporters[0].Plugin.KeyID()) {
		t.Errorf("the key is not in %q", c.Message)
	}
	// Wait for the last steps: replaced pods and the objects that they mounted are deleted.
	before := len(fixture.AwaitNoWrites(t))
	reported := len(fixture.WritesOf(t, fixture.ReporterUser))
	unchanged := time.Now()
	for i := range syncs {
		time.Sleep(apart)
		// A file with the same content but other bytes causes a sync, like the resync each minute.
		seen := strings.Count(op.Logged(), `"Configured"`)
		op.Configure(fixture.AllTargets + strings.Repeat("#\n", i+1))
		op.AwaitLogged("the file is read again", `"Configured"`, seen+1)
	}
	time.Sleep(apart)
	steady := time.Since(unchanged).Round(time.Second)
	if more := fixture.OperatorWrites(t)[before:]; len(more) > 0 {
		t.Errorf("%d writes in %s:\n%s", len(more), steady, fixture.Texts(more))
	}
	reported = len(fixture.WritesOf(t, fixture.ReporterUser)) - reported
	if reported < int(steady/fixture.Steady) { // a third of the expected writes of three reporters
		t.Errorf("the reporters wrote %d times", reported)
	}
	t.Logf("%d writes until all was delivered, 0 in %s and %d syncs after, in which the reporters wrote %d times", before, steady, syncs, reported)
	expectOneWriteEach(t, reporters[1].Plugin)
}
