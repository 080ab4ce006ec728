//go:build integration

package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// Nothing may be written through a number of syncs, each this long after the one
// before.
const (
	syncs = 5
	apart = 5 * time.Second
)

var allTargets = targets(apiservers.Kube.Target(), openShiftAPIServer(), apiservers.OAuth.Target("delivery: External"))

// deliverAll waits until all three targets need no further change.
func deliverAll(t *testing.T, op *operatorProcess) {
	t.Helper()
	for _, server := range apiservers.All {
		setEncryption(t, server, apiservers.Encryption("1", "identity"), "1")
	}
	rollStatic(t, "1", false)
	apiDeployment(t, "1")
	t.Cleanup(func() { removeStatics(t); removeDeployment(t) })
	op.configure(allTargets)
	op.start("")
	awaitAllDelivered(t)
	awaitPods(t, "openshift-apiserver", "apiserver=true", 3)
}

func awaitAllDelivered(t *testing.T) {
	t.Helper()
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	awaitCondition(t, "openshiftapiservers", "True", "Configured")
	awaitCondition(t, "authentications", "False", "NoReporters") // it has no pods
}

// Three reporters report once a second on kube-apiserver, all targets are delivered,
// and everything is healthy: nothing is written. Then a plugin becomes unhealthy.
func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	op := newOperator(t, "--leader-elect=true")
	deliverAll(t, op)
	agePods(t, apiservers.Kube.Namespace)
	reporters := startReporters(t, apiservers.Kube, operatorNamespace, "1s", nil)
	awaitHealthy(t)
	if c := resource(t, apiservers.Kube).Conditions[rollup.WriteKeyAgreed]; !strings.Contains(c.Message, reporters[0].plugin.KeyID()) {
		t.Errorf("the key is not in %q", c.Message)
	}
	// The last steps: replaced pods are deleted, and the objects that they mounted.
	before := len(awaitNoWrites(t))
	reported := len(writesOf(t, reporterUser))
	unchanged := time.Now()
	for i := range syncs {
		time.Sleep(apart)
		// The same content in other bytes is a sync, as each minute's is.
		seen := strings.Count(op.logged(), `"Configured"`)
		op.configure(allTargets + strings.Repeat("#\n", i+1))
		op.awaitLogged("the file is read again", `"Configured"`, seen+1)
	}
	time.Sleep(apart)
	steady := time.Since(unchanged).Round(time.Second)
	if more := operatorWrites(t)[before:]; len(more) > 0 {
		t.Errorf("%d writes in %s:\n%s", len(more), steady, texts(more))
	}
	reported = len(writesOf(t, reporterUser)) - reported
	if reported < int(steady/time.Second) { // each of three, once a second
		t.Errorf("the reporters wrote %d times", reported)
	}
	t.Logf("%d writes until all was delivered, 0 in %s and %d syncs after, in which the reporters wrote %d times", before, steady, syncs, reported)
	expectOneWriteEach(t, reporters)
	removeTarget(t, op, reporters)
}
