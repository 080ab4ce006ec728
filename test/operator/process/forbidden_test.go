//go:build integration

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// awaitDegraded waits until the ClusterOperator is Degraded for one of these reasons of the delivery.
func awaitDegraded(t *testing.T, reasons ...string) {
	t.Helper()
	fixture.Eventually(t, fmt.Sprintf("the ClusterOperator is degraded: one of %v", reasons), func() error {
		c := fixture.ClusterOperator(t)["Degraded"]
		if c.Status == "True" && slices.ContainsFunc(strings.Split(c.Reason, "::"), func(have string) bool {
			return slices.ContainsFunc(reasons, func(want string) bool { return have == "Delivery_"+want })
		}) {
			return nil
		}
		return fmt.Errorf("%+v", c)
	})
}

// If the operator lacks a right for an API server, it reports that in the API server's condition and the
// ClusterOperator. It continues once it has the right.
func TestWhatIsForbiddenIsReported(t *testing.T) {
	target := apiservers.OpenShift
	for name, c := range map[string]struct {
		verbs    []string
		resource string
		reason   string // empty if the operator cannot read the operator resource
	}{
		"to see the pods":              {[]string{"list"}, "pods", contract.SourceUnreadable},
		"to see the operator resource": {[]string{"list"}, target.Resource, ""},
		"to write a ServiceAccount":    {[]string{"create", "patch"}, "serviceaccounts", contract.Forbidden},
		"to patch the Deployment":      {[]string{"patch"}, "deployments", contract.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			op, allow := forbidden(t, c.verbs, c.resource)
			fixture.Deploy(t, "1", "1", "identity")
			op.Start(fixture.Targets(fixture.OpenShiftAPIServer()))
			if c.reason != "" {
				fixture.AwaitRollUp(t, target, contract.HealthReporting, "False", c.reason)
			}
			awaitDegraded(t, "Forbidden", "SourceUnreadable")
			allow(true)
			fixture.AwaitDelivered(t, target)
		})
	}
}

// startWithoutCA starts the operator, and removes its CA file before it reads the file a second time.
func startWithoutCA(t *testing.T, op *fixture.Operator) {
	t.Helper()
	kubeconfig := op.Credentials()
	must.Succeed(t, fixture.Cluster.FreezeAPIServer())
	thaw := sync.OnceFunc(func() {
		if err := fixture.Cluster.ThawAPIServer(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	op.Run(kubeconfig)
	op.AwaitLogged("its clients have their CA", `"Configured"`, 1)
	must.Succeed(t, os.Remove(filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile)))
	thaw()
}

// An invalid TLS profile is reported, and the operator uses the default profile instead. One that an API server denies
// just after its start is awaited.
func TestUnusableTLSProfileStopsNothing(t *testing.T) {
	op, allow := forbidden(t, nil, "apiservers")
	allow(true)
	fixture.SetTLSProfile(t, "Custom")
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	op.Start(fixture.KubeAPIServer(fixture.Serving))
	fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", "TLSProfileInvalid")
	awaitDegraded(t, "TLSProfileInvalid")
	fixture.Report(t, apiservers.Kube, fixture.NodeNames[0], time.Now(), contract.Entry{KeyID: "9", KEKID: "k",
		Status: contract.Healthy, LastChecked: time.Now()})
	fixture.Eventually(t, "a report about other plugins does not hide that", func() error {
		c := fixture.Resource(t, apiservers.Kube).Conditions[contract.HealthReporting]
		if !strings.Contains(c.Message, "keys that its pod does not have") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	fixture.Never(t, 2*time.Second, func() error {
		if c := fixture.ClusterOperator(t)["Degraded"]; c.Status != "True" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	fixture.AwaitDescribed(t, fixture.TLSProfile(""), 4) // three pods and the ConfigMap
	fixture.SetTLSProfile(t, "Modern")
	fixture.AwaitDescribed(t, fixture.TLSProfile("Modern"), 4)
	fixture.AwaitDelivered(t, apiservers.Kube)
	op.Kill(syscall.SIGTERM)
	allow(false)
	seen, denied := fixture.RecordConditions(t, apiservers.Kube), `resource="apiservers"`
	before := strings.Count(op.Logged(), denied)
	op.Run(op.Credentials())
	op.AwaitLogged("the profile is denied", denied, before+1)
	time.Sleep(informers.AuthorizerWarmup / 4) // an operator that does not wait has written its files by then
	must.Succeed(t, seen.None("KMSHealthReporting False TLSProfileInvalid"))
	fixture.AwaitDescribed(t, fixture.TLSProfile("Modern"), 4)
	allow(true)
	fixture.AwaitDelivered(t, apiservers.Kube)
}

// The roll-up needs only the operator resource.
func TestRollUpNeedsNoOtherSource(t *testing.T) {
	op, allow := forbidden(t, nil, "secrets", "roles", "configmaps", "apiservers", "deployments")
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	for i, node := range fixture.NodeNames {
		fixture.ReportStatus(t, apiservers.Kube, node, []contract.Status{contract.Healthy, contract.Unhealthy, contract.Healthy}[i])
	}
	op.Configure(fixture.Targets(apiservers.Kube.Target(), fixture.OpenShiftAPIServer()))
	startWithoutCA(t, op)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, "True", contract.PluginUnhealthy)
	allow(true)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", "CAUnreadable")
	disk.Write(t, filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile), fixture.Cluster.ServingCA().PEM())
}

// A pod that mounts the live Secret has loaded its content. Without the right to read the Secret, the operator does not
// know the current content.
func TestWriteKeyIsNotKnownByASecretThatMayNoLongerBeRead(t *testing.T) {
	op, allow := forbidden(t, []string{"list"}, "secrets")
	allow(true)
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"))
	fixture.RollStatic(t, "", false)
	op.Start(fixture.KubeAPIServer())
	fixture.AwaitDelivered(t, apiservers.Kube)
	fixture.StartReporters(t, apiservers.Kube, fixture.Namespace, "1s", nil, nil)
	agreed := func(reason string) {
		t.Helper()
		fixture.AwaitRollUp(t, apiservers.Kube, contract.WriteKeyAgreed, "Unknown", reason)
	}
	agreed(contract.Settling)
	allow(false)
	agreed(contract.WriteKeyUnknown)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", contract.SourceUnreadable)
	allow(true)
	agreed(contract.Settling)
}
