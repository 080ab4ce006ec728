//go:build integration

package delivery

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// After a restore of etcd, OpenShift's operators use numbers of revisions again (latestAvailableRevision + 1), with
// other content. An operator that ran meanwhile must read the new content.
func TestRevisionThatIsUsedAgainIsReadAgain(t *testing.T) {
	target := apiservers.Kube
	op := fixture.NewOperator(t)
	fixture.SetEncryption(t, target, apiservers.Encryption("4", "identity"), "1")
	fixture.RollOut(t, fixture.OnHost, "2", "1", "identity")
	op.Start(fixture.Targets(target.Target("mode: CompanionPod", "configSource: ConfigMap")))
	awaitPluginSet := func(keyID string) {
		t.Helper()
		fixture.Eventually(t, "the reporters' files have key "+keyID, func() error {
			list, err := fixture.Kube.CoreV1().ConfigMaps(fixture.Namespace).List(t.Context(), metav1.ListOptions{
				LabelSelector: contract.APIServerLabel + "=" + target.Name})
			if err != nil {
				return err
			}
			for _, m := range list.Items {
				if !strings.Contains(m.Data["config.yaml"], "kms-"+keyID+".sock") {
					return fmt.Errorf("%s is:\n%s", m.Name, m.Data["config.yaml"])
				}
			}
			if len(list.Items) == 0 {
				return errors.New("there is no ConfigMap")
			}
			return nil
		})
	}
	awaitPluginSet("1")
	fixture.RollStatic(t, "1", true)
	awaitPluginSet("4") // then the operator has seen that no pod uses revision 2
	fixture.RollOut(t, fixture.OnHost, "2", "3", "identity")
	awaitPluginSet("3")
	op.RemoveAll()
	op.Kill(syscall.SIGTERM)
	fixture.RemoveEncryption(t, target)
}
