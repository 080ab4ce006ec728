//go:build integration

package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
)

// steady is how long nothing may be written.
const steady = 2 * time.Minute

// deliverAll brings all three targets to the point where nothing is left to do.
func deliverAll(t *testing.T, h *house) {
	t.Helper()
	for _, server := range apiservers.All {
		setEncryption(t, server, apiservers.Encryption("1", "identity"), "1")
	}
	rollStatic(t, "1", false)
	apiDeployment(t, "1")
	t.Cleanup(func() { removeStatics(t); removeDeployment(t) })
	h.configure(targets(apiservers.Kube.Target(), openShiftAPIServer(), apiservers.OAuth.Target("delivery: External")))
	h.start("")
	awaitAllDelivered(t)
	awaitPods(t, "openshift-apiserver", "apiserver=true", 3)
}

func awaitAllDelivered(t *testing.T) {
	t.Helper()
	awaitCondition(t, "kubeapiservers", "True", "SocketsInPods")
	awaitCondition(t, "openshiftapiservers", "True", "Configured")
	awaitCondition(t, "authentications", "True", "Configured")
}

// Three reporters report once a second on kube-apiserver, all targets are delivered,
// and all is well: nothing is written. Then a plugin falls ill.
func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	h := newHouse(t, "--leader-elect=true")
	deliverAll(t, h)
	grown(t, apiservers.Kube.Namespace)
	reporters := startReporters(t, apiservers.Kube, home, "1s", nil)
	awaitHealthy(t)
	if c := resource(t, apiservers.Kube).Conditions[rollup.WriteKeyAgreed]; !strings.Contains(c.Message, reporters[0].plugin.KeyID()) {
		t.Errorf("the key is not in %q", c.Message)
	}
	// The last steps: pods that were replaced are gone, and what they mounted.
	before := len(awaitNoWrites(t))
	reported := len(writesOf(t, reporterUser))
	time.Sleep(steady)
	if more := operatorWrites(t)[before:]; len(more) > 0 {
		t.Errorf("%d writes in %s:\n%s", len(more), steady, texts(more))
	}
	reported = len(writesOf(t, reporterUser)) - reported
	if reported < int(steady/time.Second) {
		t.Errorf("the reporters wrote %d times", reported)
	}
	t.Logf("%d writes until all was delivered, 0 in %s after, in which the reporters wrote %d times", before, steady, reported)
	toldOnce(t, reporters)
	done(t, h, reporters)
}
