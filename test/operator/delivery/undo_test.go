//go:build integration

package delivery

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// kubectl rollout undo restores fields of an earlier template. Server-Side Apply does not remove them, since kubectl
// owns them.
func TestRolloutThatIsUndoneIsRestored(t *testing.T) {
	op := fixture.NewOperator(t)
	fixture.RollOut(t, fixture.OnHost, "1", "1", "identity")
	op.Start(fixture.KubeAPIServer("configSource: ConfigMap"))
	expect := func(step, source string) {
		t.Helper()
		lines := onNodes("agent on %s, " + source + ": 1W every 30s to kubeapiservers")
		awaitObjects(t, step, base(apiservers.Kube, fixture.Namespace, "encryption-config encryption-config-1",
			append(lines, "DaemonSet "+fixture.Namespace+"/"+contract.ReporterName(apiservers.Kube.Name))...)...)
	}
	expect("mounted", "ConfigMap")
	first, err := fixture.Kube.AppsV1().ControllerRevisions(fixture.Namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: fixture.Agents})
	if err != nil || len(first.Items) != 1 {
		t.Fatalf("%d revisions: %v", len(first.Items), err)
	}
	op.Configure(fixture.KubeAPIServer("configSource: Annotation"))
	expect("copied", "Annotation")
	if _, err := fixture.Kube.AppsV1().DaemonSets(fixture.Namespace).Patch(t.Context(),
		contract.ReporterName(apiservers.Kube.Name), types.StrategicMergePatchType, first.Items[0].Data.Raw,
		metav1.PatchOptions{FieldManager: "kubectl"}); err != nil { // as k8s.io/kubectl's rollback.go does
		t.Fatal(err)
	}
	fixture.Eventually(t, "the template is restored", func() error {
		ds, err := fixture.Kube.AppsV1().DaemonSets(fixture.Namespace).Get(t.Context(),
			contract.ReporterName(apiservers.Kube.Name), metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(ds.Spec.Template.Spec.Volumes,
			func(v corev1.Volume) bool { return v.ConfigMap != nil }) {
			err = errors.New("it mounts a ConfigMap")
		}
		return err
	})
	expect("undone", "Annotation")
	fixture.AwaitDelivered(t, apiservers.Kube)
}
