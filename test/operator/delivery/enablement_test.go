//go:build integration

package delivery

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// When KMS is turned on for the first time there is no encryption config of the
// revision without it. The pods of that revision have no plugin.
func TestFirstEnablementDegradesNothing(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=1s")
	fixture.RemoveEncryption(t, apiservers.Kube)
	for _, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, plainPod("1"))
	}
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	fixture.AgePods(t, apiservers.Kube.Namespace)
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	awaitObjects(t, "nothing is delivered", op.Before, idle(apiservers.Kube, "encryption-config encryption-config-1")...)
	fixture.Eventually(t, "the ClusterOperator has conditions", func() error {
		if c := fixture.ClusterOperator(t)["Degraded"]; c.Status == "" {
			return errors.New("not yet")
		}
		return nil
	})
	seen := fixture.RecordConditions(t, apiservers.Kube)
	undisturbed := func() error {
		found := seen.With("KMSHealthReporting", "SocketVolumeMissing")
		found = append(found, seen.With("KMSPluginsDegraded", " True ")...)
		found = append(found, seen.With("KMSPluginsDegraded", " Unknown ")...)
		if c := fixture.ClusterOperator(t)["Degraded"]; c.Status != "False" {
			found = append(found, fmt.Sprintf("ClusterOperator: %+v", c))
		}
		if len(found) > 0 {
			return fmt.Errorf("a first enablement led to:\n%s", strings.Join(found, "\n"))
		}
		return nil
	}

	// The live encryption config first, then pod by pod.
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "2")
	fixture.Never(t, 4*time.Second, undisturbed)
	for i, node := range fixture.NodeNames {
		fixture.RunStatic(t, node, fixture.StaticPod("2", false))
		pods := fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, i+1)
		for _, p := range pods {
			fixture.ReportStatus(t, apiservers.Kube, p.Spec.NodeName, contract.Healthy)
		}
		fixture.AgePods(t, apiservers.Kube.Namespace)
		fixture.Never(t, 3*time.Second, undisturbed)
	}
	fixture.AwaitDelivered(t, apiservers.Kube.Resource)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

// The configuration of an encryption config applies to those of revisions, too,
// which are read once.
func TestNamesOfKeysFollowTheConfiguration(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	op.Start("")
	expect := func(step, set string) {
		t.Helper()
		fixture.Eventually(t, step, func() error {
			lines, err := fixture.Describe(t.Context(), fixture.UsualKind)
			if err == nil && strings.Count(strings.Join(lines, "\n"), fromAnnotation+set+" every") != 3 {
				err = fmt.Errorf("%s", strings.Join(lines, "\n"))
			}
			return err
		})
	}
	expect("named by the sockets", "1W")
	op.Configure(fixture.Targets(apiservers.Kube.Target(`encryptionConfig: {keyIDs: {"unix:///var/run/kmsplugin/kms-1.sock": "77"}}`)))
	expect("named by the configuration", "77W")
	for _, revision := range []string{"", "1"} {
		secret := apiservers.Secret(revision, apiservers.Encryption("1", "identity"))
		secret["stringData"].(map[string]any)["second"] = apiservers.Encryption("2", "identity")
		fixture.ApplyObject(t, apiservers.Secrets, apiservers.Kube.Namespace, secret)
	}
	op.Configure(fixture.Targets(apiservers.Kube.Target("encryptionConfig: {key: second}")))
	expect("at another key of the Secret", "2W")
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	expect("at the usual key again", "1W")

	// A target that names its plugins itself reads no Secret, and needs no right to.
	op.Configure(fixture.Targets(apiservers.Kube.Target(`plugins: [{endpoint: "unix:///var/run/kmsplugin/kms-3.sock", role: Write}]`)))
	expect("named plugins", "3W")
	fixture.Eventually(t, "the right to read Secrets is removed", func() error {
		lines, err := fixture.Describe(t.Context(), fixture.UsualKind)
		if err == nil && strings.Contains(strings.Join(lines, "\n"), "Role "+apiservers.Kube.Namespace) {
			err = fmt.Errorf("%s", strings.Join(lines, "\n"))
		}
		return err
	})
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}
