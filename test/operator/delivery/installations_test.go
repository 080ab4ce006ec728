//go:build integration

package delivery

import (
	"fmt"
	"maps"
	"net/http"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// A second installation changes nothing while the first exists, and takes over after it is removed.
func TestSecondInstallationRefusesToAct(t *testing.T) {
	const other = "other-installation"
	if _, err := fixture.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	first, second := fixture.NewOperator(t), fixture.NewOperator(t, "--namespace", other)
	health := controlplane.FreeAddress(t)
	second.More = []string{"--health-bind-address", health}
	fixture.RollOut(t, fixture.InPod, "1", "1", "identity")
	second.Configure(fixture.KubeAPIServer())
	first.Start(fixture.KubeAPIServer())
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3)
	fixture.AwaitDelivered(t, apiservers.Kube)
	was, uids := snapshot(t, first), fixture.PodUIDs(t, fixture.Companions)

	second.Run(fixture.Cluster.AdminKubeconfig(t))
	second.AwaitLogged("the other installation is reported", "OtherInstallation", 1)
	ready := func() int {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	fixture.Never(t, 3*time.Second, func() error {
		if now := snapshot(t, first); now != was {
			return fmt.Errorf("the second installation made it\n%s\nit was\n%s", now, was)
		}
		if now := fixture.PodUIDs(t, fixture.Companions); !maps.Equal(now, uids) {
			return fmt.Errorf("companions are %v, were %v", now, uids)
		}
		if code := ready(); code == http.StatusOK {
			return fmt.Errorf("the second installation is ready")
		}
		return nil
	})

	first.Configure("apiServers: []\n")
	fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 0)
	fixture.AwaitPods(t, other, fixture.Companions, 3)
	first.Kill(syscall.SIGTERM)
	fixture.AwaitEqual(t, "the second installation is ready", http.StatusOK, ready)
}
