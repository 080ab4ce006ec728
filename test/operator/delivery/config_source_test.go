//go:build integration

package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// watchCompanions watches until wrong is called, which returns the nodes that had no running companion, once for each
// check.
func watchCompanions(t *testing.T) (wrong func() []string) {
	var seen []string
	stop := fixture.Repeat(t, 50*time.Millisecond, func(ctx context.Context) {
		list, err := fixture.Kube.CoreV1().Pods(fixture.Namespace).List(ctx, metav1.ListOptions{LabelSelector: fixture.Companions})
		if err != nil {
			return
		}
		for _, node := range fixture.NodeNames {
			if !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
				return p.Spec.NodeName == node && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning
			}) {
				seen = append(seen, "no companion runs on "+node)
			}
		}
	})
	return func() []string { stop(); return seen }
}

func TestConfigSourceIsChangedWithoutAGap(t *testing.T) {
	const plugins = `plugins: [{endpoint: "unix:///var/run/kmsplugin/kms-1.sock", role: Write}]`
	op := fixture.NewOperator(t)
	config := func(interval, source string) string {
		return fixture.Every(interval, apiservers.Kube.Target("configSource: "+source),
			apiservers.OAuth.Target("mode: DaemonSet", "configSource: "+source, plugins, "nodeSelector: {kubernetes.io/os: linux}"))
	}
	both := apiservers.Encryption("1", "identity")
	secretsOnly, _, _ := strings.Cut(both, "- resources: [configmaps]")
	fixture.SetEncryption(t, apiservers.Kube, secretsOnly, "1")
	fixture.RollStatic(t, "1", false)
	op.Start(config("30s", "ConfigMap"))
	expect := func(step, source, interval, reason string) {
		t.Helper()
		file := ", " + source + ": 1W every " + interval + " to "
		lines := base(apiservers.Kube, fixture.Namespace, "encryption-config encryption-config-1", onNodes("companion on %s, reporter:1"+file+"kubeapiservers")...)
		oauth := base(apiservers.OAuth, fixture.Namespace, "", append(onNodes("agent on %s"+file+"authentications"), "DaemonSet "+fixture.Namespace+"/kms-health-reporter-oauth-apiserver")...)
		for _, line := range oauth {
			if !strings.HasPrefix(line, "Role ") { // with plugins in the file, the operator reads no Secret
				lines = append(lines, line)
			}
		}
		awaitObjects(t, step, lines...)
		fixture.Eventually(t, "the conditions have the reason", func() error {
			for _, server := range []apiservers.Server{apiservers.Kube, apiservers.OAuth} {
				c := fixture.Resource(t, server).Conditions[contract.HealthReporting]
				if problem := c.Reason == "ConfigMapsEncrypted"; problem != (reason != "") || problem && !strings.Contains(c.Message, "set configSource: Annotation") {
					return fmt.Errorf("%s: %+v", server.Resource, c)
				}
			}
			return nil
		})
	}
	expect("mounted", "ConfigMap", "30s", "")
	wrong := watchCompanions(t)

	// kube-apiserver's encryption config matters for all API servers, since kube-apiserver stores all ConfigMaps.
	fixture.SetEncryption(t, apiservers.Kube, both)
	expect("configmaps begin to be encrypted", "ConfigMap", "30s", "ConfigMapsEncrypted")
	op.Configure(config("30s", "Annotation"))
	expect("copied", "Annotation", "30s", "")
	uids := fixture.PodUIDs(t, contract.APIServerLabel)
	op.Configure(config("10s", "Annotation"))
	expect("another interval is live", "Annotation", "10s", "")
	must.Equal(t, "pods with another interval", fixture.PodUIDs(t, contract.APIServerLabel), uids)
	fixture.SetEncryption(t, apiservers.Kube, secretsOnly)
	op.Configure(config("10s", "ConfigMap"))
	expect("mounted again", "ConfigMap", "10s", "")
	uids = fixture.PodUIDs(t, contract.APIServerLabel)
	fixture.StaysEqual(t, 3*time.Second, uids, func() map[string]string { return fixture.PodUIDs(t, contract.APIServerLabel) })
	if all := wrong(); len(all) > 0 {
		t.Errorf("%d times: %s", len(all), strings.Join(all[:min(5, len(all))], "; "))
	}
}
