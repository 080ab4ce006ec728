//go:build integration

package process

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// forbidden returns an operator whose requests for these resources are forbidden until allow(true).
func forbidden(t *testing.T, resources ...string) (op *fixture.Operator, allow func(bool)) {
	t.Helper()
	var allowed atomic.Bool
	server := fixture.StartProxy(t, nil, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			about := func(part string) bool { return slices.Contains(resources, part) }
			if !allowed.Load() && slices.ContainsFunc(strings.Split(r.URL.Path, "/"), about) {
				http.Error(w, "forbidden by the test", http.StatusForbidden)
				return
			}
			forward.ServeHTTP(w, r)
		}
	})
	op = fixture.NewOperator(t, "--degraded-inertia=1s")
	op.Server = server.URL
	return op, func(now bool) {
		allowed.Store(now)
		server.CloseClientConnections() // otherwise a running watch continues without the right
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
	op, allow := forbidden(t, "apiservers")
	allow(true)
	fixture.SetTLSProfile(t, "Custom")
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	op.Start(fixture.KubeAPIServer(fixture.Serving))
	fixture.AwaitRollUp(t, apiservers.Kube, contract.HealthReporting, "False", "TLSProfileInvalid")
	fixture.Eventually(t, "the ClusterOperator is degraded", func() error {
		c := fixture.ClusterOperator(t)["Degraded"]
		if c.Status != "True" || !slices.Contains(strings.Split(c.Reason, "::"), "Delivery_TLSProfileInvalid") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	fixture.AwaitDescribed(t, fixture.TLSProfile(""), 3)
	fixture.SetTLSProfile(t, "Modern")
	fixture.AwaitDescribed(t, fixture.TLSProfile("Modern"), 3)
	fixture.AwaitDelivered(t, apiservers.Kube)
	op.Kill(syscall.SIGTERM)
	allow(false)
	seen, denied := fixture.RecordConditions(t, apiservers.Kube), `resource="apiservers"`
	before := strings.Count(op.Logged(), denied)
	op.Run(op.Credentials())
	op.AwaitLogged("the profile is denied", denied, before+1)
	time.Sleep(informers.AuthorizerWarmup / 4) // an operator that does not wait has written its files by then
	must.Succeed(t, seen.None("KMSHealthReporting False TLSProfileInvalid"))
	fixture.AwaitDescribed(t, fixture.TLSProfile("Modern"), 3)
	allow(true)
	fixture.AwaitDelivered(t, apiservers.Kube)
}

// The roll-up needs only the operator resource.
func TestRollUpNeedsNoOtherSource(t *testing.T) {
	op, allow := forbidden(t, "secrets", "roles", "configmaps", "apiservers", "deployments")
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	for i, node := range fixture.NodeNames {
		fixture.ReportStatus(t, apiservers.Kube, node, []contract.Status{contract.Healthy, contract.Unhealthy, contract.Healthy}[i])
	}
	op.Configure(fixture.Targets(apiservers.Kube.Target(), fixture.OpenShiftAPIServer()))
	startWithoutCA(t, op)
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, "True", contract.PluginUnhealthy)
	allow(true)
	fixture.Eventually(t, "the CA alone cannot be read", func() error {
		c := fixture.Resource(t, apiservers.Kube).Conditions[contract.HealthReporting]
		if c.Reason != contract.SourceUnreadable || !strings.HasPrefix(c.Message, "the CA of the API server cannot be read: ") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	disk.Write(t, filepath.Join(op.Dir, "credentials", controlplane.KubeconfigCAFile), fixture.Cluster.ServingCA().PEM())
}
