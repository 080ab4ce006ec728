//go:build integration

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// awaitDegraded waits until the ClusterOperator is Degraded for a delivery's reason, for
// less time than an operator that has just started waits for its roll-ups.
func awaitDegraded(t *testing.T, reasons ...string) {
	t.Helper()
	err := wait.For(t.Context(), 20*time.Second, fmt.Sprintf("the ClusterOperator is degraded: one of %v", reasons), func(context.Context) error {
		c := fixture.ClusterOperator(t)["Degraded"]
		if c.Status == "True" && slices.ContainsFunc(strings.Split(c.Reason, "::"), func(have string) bool {
			return slices.ContainsFunc(reasons, func(want string) bool { return have == "Delivery_"+want })
		}) {
			return nil
		}
		return fmt.Errorf("%+v", c)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever the operator may not do or see of a target is in the target's condition, the
// ClusterOperator and the metrics, and is done once it may.
func TestWhatIsForbiddenIsReported(t *testing.T) {
	target := apiservers.OpenShift
	for name, c := range map[string]struct {
		verbs    []string
		resource string
		unread   bool // the operator resource itself
	}{
		"to see the Deployment":        {[]string{"list", "watch"}, "deployments", false},
		"to see the namespace":         {[]string{"list", "watch"}, "namespaces", false},
		"to see the pods":              {[]string{"list", "watch"}, "pods", false},
		"to see the nodes":             {[]string{"list", "watch"}, "nodes", false},
		"to see the operator resource": {[]string{"list", "watch"}, target.Resource, true},
		"to write a ServiceAccount":    {[]string{"create", "patch"}, "serviceaccounts", false},
		"to patch the Deployment":      {[]string{"patch"}, "deployments", false},
	} {
		t.Run(name, func(t *testing.T) {
			op := fixture.NewOperator(t, "--degraded-inertia=1s")
			metric := op.ServeMetrics()
			fixture.SetEncryption(t, target, apiservers.Encryption("1", "identity"), "1")
			fixture.ApplyDeployment(t, "1")
			t.Cleanup(func() { fixture.RemoveDeployment(t) })
			fixture.AwaitPods(t, target.Namespace, "apiserver=true", 3)
			restore := revoke(t, c.verbs, c.resource)
			op.Configure(fixture.Targets(fixture.OpenShiftAPIServer()))
			op.Start("")
			if !c.unread {
				fixture.AwaitReason(t, target, "Forbidden", "SourceUnreadable")
			}
			awaitDegraded(t, "Forbidden", "SourceUnreadable")
			fixture.AwaitSample(t, metric, "kms_health_operator_delivered", "0", `api_server="`+target.Name+`"`, `reason="`)
			restore()
			fixture.AwaitDelivered(t, target.Resource)
			fixture.AwaitSample(t, metric, "kms_health_operator_delivered", "1", `api_server="`+target.Name+`"`, `reason="AsExpected"`)
			op.Configure("apiServers: []\n")
			op.AwaitNothingLeft()
		})
	}
}

// startWithoutCA starts the operator, and removes the file of its CA before it can be
// read a second time.
func startWithoutCA(t *testing.T, op *fixture.Operator) {
	t.Helper()
	kubeconfig := op.Credentials("")
	if err := fixture.Cluster.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	thaw := sync.OnceFunc(func() {
		if err := fixture.Cluster.ThawAPIServer(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	op.Run(kubeconfig)
	op.AwaitLogged("the operator starts", `"Starting"`, 1)
	time.Sleep(time.Second) // its clients have their CA
	if err := os.Remove(filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile)); err != nil {
		t.Fatal(err)
	}
	thaw()
}

// restoreCA puts the file back.
func restoreCA(t *testing.T, op *fixture.Operator) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile), fixture.Cluster.ServingCA().PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitRollUpSoon reports an unhealthy plugin, and expects the roll-up within two seconds.
func awaitRollUpSoon(t *testing.T) {
	t.Helper()
	var mu sync.Mutex
	var reported, verdict time.Time
	fixture.WatchResource(t, apiservers.Kube, func(at time.Time, r *operatorcr.Status) {
		mu.Lock()
		defer mu.Unlock()
		for _, report := range r.Reports {
			if reported.IsZero() && len(report.Entries) > 0 && report.Entries[0].Status == contract.Unhealthy {
				reported = at
			}
		}
		if c := r.Conditions[contract.PluginsDegraded]; verdict.IsZero() && c.Status == "True" && c.Reason == contract.PluginUnhealthy {
			verdict = at
		}
	})
	fixture.ReportStatus(t, apiservers.Kube, fixture.NodeNames[1], contract.Unhealthy)
	fixture.Eventually(t, "the roll-up reports an unhealthy plugin", func() error {
		mu.Lock()
		defer mu.Unlock()
		if verdict.IsZero() {
			return errors.New("not yet")
		}
		return nil
	})
	if after := verdict.Sub(reported); after > fixture.RollUpWithin {
		t.Errorf("rolled up %s after the report, must be at most %s", after, fixture.RollUpWithin)
	} else {
		t.Logf("rolled up %s after the report", after.Round(time.Millisecond))
	}
}

// The roll-up needs the operator resource, and nothing else.
func TestRollUpNeedsNoOtherSource(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.SetTLSProfile(t, "Custom")
	t.Cleanup(func() { fixture.RemoveStatics(t); fixture.SetTLSProfile(t, "") })
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	fixture.AgePods(t, apiservers.Kube.Namespace)
	restore := revoke(t, nil, "secrets", "roles", "configmaps", "apiservers", "deployments")
	for _, node := range fixture.NodeNames {
		fixture.ReportStatus(t, apiservers.Kube, node, contract.Healthy)
	}
	op.Configure(fixture.Targets(apiservers.Kube.Target(), fixture.OpenShiftAPIServer()))
	startWithoutCA(t, op)
	fixture.Eventually(t, "there is a roll-up", func() error {
		if c := fixture.Resource(t, apiservers.Kube).Conditions[contract.PluginsDegraded]; c.Status == "" {
			return errors.New("no condition " + contract.PluginsDegraded)
		}
		return nil
	})
	awaitRollUpSoon(t)
	restore()
	fixture.SetTLSProfile(t, "")
	restoreCA(t, op)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

// A TLS profile that is not understood is replaced by the default one, and reported.
func TestUnusableTLSProfileStopsNothing(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=1s")
	fixture.SetTLSProfile(t, "Custom")
	t.Cleanup(func() { fixture.RemoveStatics(t); fixture.SetTLSProfile(t, "") })
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	fixture.AgePods(t, apiservers.Kube.Namespace)
	op.Configure(fixture.Targets(apiservers.Kube.Target(fixture.Serving)))
	op.Start("")
	fixture.AwaitReason(t, apiservers.Kube, "TLSProfileInvalid")
	awaitDegraded(t, "TLSProfileInvalid")
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	lines, err := fixture.Describe(t.Context(), fixture.UsualKind)
	if text := strings.Join(lines, "\n"); err != nil || strings.Count(text, fixture.TLSProfile("")) != 4 { // of three pods, and the ConfigMap
		t.Errorf("not the intermediate profile: %v\n%s", err, text)
	}
	for _, node := range fixture.NodeNames {
		fixture.ReportStatus(t, apiservers.Kube, node, contract.Healthy)
	}
	awaitRollUpSoon(t)
	fixture.SetTLSProfile(t, "")
	fixture.AwaitDelivered(t, apiservers.Kube.Resource)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}

func TestUnreadableCAStopsNothing(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=1s")
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	fixture.SetEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	fixture.RollStatic(t, "1", false)
	fixture.AgePods(t, apiservers.Kube.Namespace)
	for _, node := range fixture.NodeNames {
		fixture.ReportStatus(t, apiservers.Kube, node, contract.Healthy)
	}
	op.Configure(fixture.Targets(apiservers.Kube.Target()))
	startWithoutCA(t, op)
	fixture.AwaitReason(t, apiservers.Kube, "CAUnreadable")
	awaitDegraded(t, "CAUnreadable")
	awaitRollUpSoon(t)
	restoreCA(t, op)
	fixture.AwaitDelivered(t, apiservers.Kube.Resource)
	op.Configure("apiServers: []\n")
	op.AwaitNothingLeft()
}
