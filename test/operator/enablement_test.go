//go:build integration

package operator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// reportStatus writes what a reporter of a plugin with key 1 would, now.
func reportStatus(t *testing.T, server apiservers.Server, node string, status health.Status) {
	t.Helper()
	reportAt(t, server, node, status, time.Now(), time.Now())
}

// reportAt is reportStatus of a reporter that first wrote at one time, and last at
// another.
func reportAt(t *testing.T, server apiservers.Server, node string, status health.Status, first, last time.Time) {
	t.Helper()
	entry := health.Entry{KeyID: "1", KEKID: "k", Status: status, LastChecked: last, Interval: 30 * time.Second}
	if status != health.Healthy {
		entry.Detail = "the vault is sealed"
	}
	message, err := health.EncodeMessage([]health.Entry{entry})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Report(t.Context(), client, node, message, first); err != nil {
		t.Fatal(err)
	}
}

// When KMS is turned on for the first time there is no encryption config of the
// revision without it. The pods of that revision have no plugin.
func TestFirstEnablementDegradesNothing(t *testing.T) {
	op := newOperator(t, "--degraded-inertia=1s")
	removeEncryption(t, apiservers.Kube)
	for _, node := range nodeNames {
		runStatic(t, node, plainPod("1"))
	}
	t.Cleanup(func() { removeStatics(t) })
	agePods(t, apiservers.Kube.Namespace)
	op.configure(targets(apiservers.Kube.Target()))
	op.start("")
	awaitObjects(t, "nothing is delivered", op.before, idle(apiservers.Kube, "encryption-config encryption-config-1")...)
	seen := recordConditions(t, apiservers.Kube)
	undisturbed := func() error {
		found := seen.with("KMSHealthDelivery", "SocketVolumeMissing")
		found = append(found, seen.with("KMSPluginsDegraded", " True ")...)
		found = append(found, seen.with("KMSPluginsDegraded", " Unknown ")...)
		if c := clusterOperator(t)["Degraded"]; c.Status != "False" {
			found = append(found, fmt.Sprintf("ClusterOperator: %+v", c))
		}
		if len(found) > 0 {
			return fmt.Errorf("a first enablement led to:\n%s", strings.Join(found, "\n"))
		}
		return nil
	}

	// The live encryption config first, then pod by pod.
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "2")
	never(t, 4*time.Second, undisturbed)
	for i, node := range nodeNames {
		runStatic(t, node, staticPod("2", false))
		pods := awaitPods(t, operatorNamespace, companions, i+1)
		for _, p := range pods {
			reportStatus(t, apiservers.Kube, p.Spec.NodeName, health.Healthy)
		}
		agePods(t, apiservers.Kube.Namespace)
		never(t, 3*time.Second, undisturbed)
	}
	awaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}

// The configuration of an encryption config applies to those of revisions, too,
// which are read once.
func TestNamesOfKeysFollowTheConfiguration(t *testing.T) {
	op := newOperator(t)
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	op.configure(targets(apiservers.Kube.Target()))
	op.start("")
	expect := func(step, set string) {
		t.Helper()
		eventually(t, step, func() error {
			lines, err := describe(t.Context(), usualKind)
			if err == nil && strings.Count(strings.Join(lines, "\n"), ": "+set+" every") != 3 {
				err = fmt.Errorf("%s", strings.Join(lines, "\n"))
			}
			return err
		})
	}
	expect("named by the sockets", "1W")
	op.configure(targets(apiservers.Kube.Target(`encryptionConfig: {keyIDs: {"unix:///var/run/kmsplugin/kms-1.sock": "77"}}`)))
	expect("named by the configuration", "77W")
	for _, revision := range []string{"", "1"} {
		secret := apiservers.Secret(revision, apiservers.Encryption("1", "identity"))
		secret["stringData"].(map[string]any)["second"] = apiservers.Encryption("2", "identity")
		applyObject(t, apiservers.Secrets, apiservers.Kube.Namespace, secret)
	}
	op.configure(targets(apiservers.Kube.Target("encryptionConfig: {key: second}")))
	expect("at another key of the Secret", "2W")
	op.configure(targets(apiservers.Kube.Target()))
	expect("at the usual key again", "1W")

	// A target that names its plugins itself reads no Secret, and needs no right to.
	op.configure(targets(apiservers.Kube.Target(`plugins: [{endpoint: "unix:///var/run/kmsplugin/kms-3.sock", role: Write}]`)))
	expect("named plugins", "3W")
	eventually(t, "the right to read Secrets is removed", func() error {
		lines, err := describe(t.Context(), usualKind)
		if err == nil && strings.Contains(strings.Join(lines, "\n"), "Role "+apiservers.Kube.Namespace) {
			err = fmt.Errorf("%s", strings.Join(lines, "\n"))
		}
		return err
	})
	op.configure("targets: []\n")
	op.awaitNothingLeft()
}
