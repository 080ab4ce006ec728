//go:build integration

package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
	"github.com/kms-health/kms-health/test/manifests/install"
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

func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	h := newHouse(t, "--leader-elect=true")
	deliverAll(t, h)
	// The last steps: pods that were replaced are gone, and what they mounted.
	writes := func() []string {
		t.Helper()
		if err := cluster.AuditFence(t.Context()); err != nil {
			t.Fatal(err)
		}
		events, err := cluster.AuditEvents(controlplane.ByUser(controlplane.ServiceAccountUser(home, install.ServiceAccount)), func(e *auditv1.Event) bool {
			return !slices.Contains([]string{"get", "list", "watch"}, e.Verb) && (e.ObjectRef == nil || e.ObjectRef.Resource != "leases")
		})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range events {
			all = append(all, fmt.Sprintf("%s %s %s", e.RequestReceivedTimestamp.Format("15:04:05.000"), e.Verb, e.RequestURI))
		}
		return all
	}
	quiet := time.Now()
	for seen := len(writes()); time.Since(quiet) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		if n := len(writes()); n != seen {
			seen, quiet = n, time.Now()
		}
	}
	before := len(writes())
	// Nothing changes, but for what a cluster always does: reporters report.
	for end := time.Now().Add(steady); time.Now().Before(end); time.Sleep(time.Second) {
		for _, node := range nodeNames {
			report(t, apiservers.Kube, node, time.Now())
		}
	}
	if more := writes()[before:]; len(more) > 0 {
		t.Errorf("%d writes in %s:\n%s", len(more), steady, strings.Join(more, "\n"))
	}
	t.Logf("%d writes until all was delivered, 0 in %s after", before, steady)
	h.configure("targets: []\n")
	h.awaitNothingLeft()
}
