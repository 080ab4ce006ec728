//go:build integration

package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
)

// Nothing may be written through so many passes over everything, each so long after
// the one before.
const (
	passes = 5
	apart  = 5 * time.Second
)

var allTargets = targets(apiservers.Kube.Target(), openShiftAPIServer(), apiservers.OAuth.Target("delivery: External"))

// deliverAll brings all three targets to the point where nothing is left to do.
func deliverAll(t *testing.T, h *house) {
	t.Helper()
	for _, server := range apiservers.All {
		setEncryption(t, server, apiservers.Encryption("1", "identity"), "1")
	}
	rollStatic(t, "1", false)
	apiDeployment(t, "1")
	t.Cleanup(func() { removeStatics(t); removeDeployment(t) })
	h.configure(allTargets)
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
	quiet := time.Now()
	for i := range passes {
		time.Sleep(apart)
		// The same in other words is a pass, as the minute's is.
		seen := strings.Count(h.logged(), `"Configured"`)
		h.configure(allTargets + strings.Repeat("#\n", i+1))
		h.awaitLogged("the file is read again", `"Configured"`, seen+1)
	}
	time.Sleep(apart)
	steady := time.Since(quiet).Round(time.Second)
	if more := operatorWrites(t)[before:]; len(more) > 0 {
		t.Errorf("%d writes in %s:\n%s", len(more), steady, texts(more))
	}
	reported = len(writesOf(t, reporterUser)) - reported
	if reported < int(steady/time.Second) { // each of three, once a second
		t.Errorf("the reporters wrote %d times", reported)
	}
	t.Logf("%d writes until all was delivered, 0 in %s and %d passes after, in which the reporters wrote %d times", before, steady, passes, reported)
	toldOnce(t, reporters)
	done(t, h, reporters)
}
