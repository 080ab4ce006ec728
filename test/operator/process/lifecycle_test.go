//go:build integration

package process

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// The operator starts without a valid file, while the API server does not answer. It must report that no configuration
// is active, and the version of its OpenShift release.
func TestStartsWithoutFileAndAPIServer(t *testing.T) {
	const release = "4.22.1"
	t.Setenv("OPERATOR_IMAGE_VERSION", release)
	op := fixture.NewOperator(t, "--degraded-inertia=1s")
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	kubeconfig := op.Credentials()
	must.Succeed(t, fixture.Cluster.FreezeAPIServer())
	thaw := sync.OnceFunc(func() {
		must.Succeed(t, fixture.Cluster.ThawAPIServer())
	})
	t.Cleanup(thaw)
	op.Run(kubeconfig)
	op.Configure("this: is no configuration of ours\n")
	op.AwaitLogged("the bad file is reported", `"Rejected the configuration`, 1)
	thaw()
	fixture.AwaitClusterOperator(t, "False False True True")
	o, err := fixture.Client.Resource(controlplane.ConfigGVR(controlplane.ClusterOperators)).Get(t.Context(), contract.ClusterOperator, metav1.GetOptions{})
	must.Succeed(t, err)
	// The cluster-version-operator's checkOperatorHealth waits for exactly this.
	want := []any{map[string]any{"name": "operator", "version": release}}
	got, _, _ := unstructured.NestedSlice(o.Object, "status", "versions")
	must.Equal(t, "versions", got, want)
	op.Configure(fixture.KubeAPIServer("mode: Auto"))
	fixture.AwaitDelivered(t, apiservers.Kube)
	// The last good file stays active.
	op.ConfigureRaw("garbage")
	op.AwaitLogged("the bad file is reported", `"Rejected the configuration`, 2)
	fixture.RollOut(t, fixture.InPod, "2", "2", "identity")
	fixture.AwaitDescribed(t, "2W every 30s", len(fixture.NodeNames))
}

// For a moment, a new process knows less than the old one. No condition may change because of that.
func TestRestartOfTheOperatorChangesNoCondition(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.StartReporting(t, op, nil, fixture.Steady.String())
	seen := fixture.RecordConditions(t, apiservers.Kube)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		op.Restart(signal)
		fixture.Never(t, 5*time.Second, func() error {
			// The reason Settling also occurs without a restart.
			if found := seen.With(" Unknown "); len(found) > 1 || len(found) == 1 && !strings.Contains(found[0], contract.Settling) {
				return fmt.Errorf("%q", found)
			}
			return nil
		})
	}
	fixture.AwaitHealthy(t)
}
