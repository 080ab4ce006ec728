//go:build integration

package delivery

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// watchCompanions returns what is wrong with the companions while it watches: a node
// without a running one, or more than one node with two. It stops at the end of the test.
func watchCompanions(t *testing.T) (wrong func() []string) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var mu sync.Mutex
	var seen []string
	running.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			list, err := fixture.Kube.CoreV1().Pods(fixture.Namespace).List(ctx, metav1.ListOptions{LabelSelector: fixture.Companions})
			if err != nil {
				continue
			}
			alive, all := map[string]int{}, map[string]int{}
			for _, p := range list.Items {
				if p.DeletionTimestamp != nil {
					continue
				}
				all[p.Spec.NodeName]++
				if p.Status.Phase == corev1.PodRunning {
					alive[p.Spec.NodeName]++
				}
			}
			two := 0
			mu.Lock()
			for _, node := range fixture.NodeNames {
				if alive[node] == 0 {
					seen = append(seen, "no companion runs on "+node)
				}
				if all[node] > 1 {
					two++
				}
			}
			if two > 1 {
				seen = append(seen, fmt.Sprintf("%d nodes are being replaced", two))
			}
			mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func TestFilesAreCopiedWhereConfigMapsAreEncryptedAndElseMounted(t *testing.T) {
	both := apiservers.Encryption("1", "identity")
	secretsOnly, _, _ := strings.Cut(both, "- resources: [configmaps]")
	op := fixture.NewOperator(t)
	// The second target has no encryption config of its own: kube-apiserver's counts.
	config := func(interval string) string {
		return fixture.Every(interval, apiservers.Kube.Target(), apiservers.OAuth.Target("delivery: DaemonSet",
			`plugins: [{endpoint: "unix:///var/run/kmsplugin/kms-1.sock", role: Write}]`, "nodeSelector: {kubernetes.io/os: linux}"))
	}
	op.Configure(config("30s"))
	fixture.SetEncryption(t, apiservers.Kube, secretsOnly, "1")
	fixture.RollStatic(t, "1", false)
	t.Cleanup(func() { fixture.RemoveStatics(t) })
	op.Start("")
	expect := func(step, source, interval, why string) {
		t.Helper()
		file := ", " + source + ": 1W every " + interval + " to "
		lines := base(apiservers.Kube, fixture.Namespace, "encryption-config encryption-config-1", onNodes("companion on %s, reporter:1"+file+"kubeapiservers")...)
		oauth := base(apiservers.OAuth, fixture.Namespace, "", append(onNodes("agent on %s"+file+"authentications"), "DaemonSet "+fixture.Namespace+"/kms-health-reporter-oauth-apiserver")...)
		for _, line := range oauth {
			if !strings.HasPrefix(line, "Role ") { // it reads no Secret
				lines = append(lines, line)
			}
		}
		awaitObjects(t, step, op.Before, lines...)
		fixture.Eventually(t, "the condition has the reason", func() error {
			for _, server := range []apiservers.Server{apiservers.Kube, apiservers.OAuth} {
				if status, reason, message := fixture.Condition(t.Context(), server.Resource); status != "True" || !strings.Contains(message, "configSource "+source+": "+why) {
					return fmt.Errorf("%s: %s %s %s", server.Resource, status, reason, message)
				}
			}
			return nil
		})
	}
	expect("mounted", "ConfigMap", "30s", "kube-apiserver does not encrypt configmaps with KMS")
	wrong := watchCompanions(t)

	fixture.SetEncryption(t, apiservers.Kube, both)
	expect("configmaps begin to be encrypted", "Annotation", "30s", "kube-apiserver encrypts configmaps with KMS")
	uids := fixture.PodUIDs(t, "kmshealth.openshift.io/target")
	op.Configure(config("10s"))
	expect("another interval is live", "Annotation", "10s", "kube-apiserver encrypts configmaps with KMS")
	if now := fixture.PodUIDs(t, "kmshealth.openshift.io/target"); fmt.Sprint(now) != fmt.Sprint(uids) {
		t.Errorf("pods were replaced for an interval: %v, were %v", now, uids)
	}
	fixture.SetEncryption(t, apiservers.Kube, secretsOnly)
	expect("configmaps cease to be encrypted", "ConfigMap", "10s", "kube-apiserver does not encrypt configmaps with KMS")
	uids = fixture.PodUIDs(t, "kmshealth.openshift.io/target")
	fixture.Never(t, 3*time.Second, func() error {
		if now := fixture.PodUIDs(t, "kmshealth.openshift.io/target"); fmt.Sprint(now) != fmt.Sprint(uids) {
			return fmt.Errorf("pods are replaced again: %v, were %v", now, uids)
		}
		return nil
	})
	if all := wrong(); len(all) > 0 {
		t.Errorf("%d times: %s", len(all), strings.Join(all[:min(5, len(all))], "; "))
	}
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}

// Three targets, all four deliveries.
func TestEveryDeliveryShowsItsFileInAConfigMap(t *testing.T) {
	op := fixture.NewOperator(t)
	for _, server := range apiservers.All {
		fixture.SetEncryption(t, server, apiservers.Encryption("1", "identity"), "1")
	}
	fixture.RollStatic(t, "1", false)
	fixture.ApplyDeployment(t, "1")
	t.Cleanup(func() { fixture.RemoveStatics(t); fixture.RemoveDeployment(t) })
	config := func(kube, oauth string) string {
		return fixture.Every("30s", apiservers.Kube.Target("delivery: "+kube), apiservers.OpenShift.Target("delivery: Deployment", "deployment: apiserver"), apiservers.OAuth.Target(oauth))
	}
	op.Configure(config("Companion", "delivery: External"))
	op.Start("")
	shown := func(step string, want ...string) {
		t.Helper()
		fixture.Eventually(t, step, func() error {
			list, err := fixture.Kube.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kms-health-reporter"})
			if err != nil {
				return err
			}
			var got []string
			for _, c := range list.Items {
				got = append(got, c.Namespace+"/"+c.Name+": "+fixture.DescribeFile(c.Data["config.yaml"]))
			}
			if text := strings.Join(got, "\n"); text != strings.Join(want, "\n") {
				return fmt.Errorf("there are\n%s", text)
			}
			return nil
		})
		t.Logf("%s:\n%s", step, strings.Join(want, "\n"))
	}
	line := func(server apiservers.Server, namespace string) string {
		return strings.TrimPrefix(configMap(server, namespace, "1W every 30s to "+server.Resource, server == apiservers.Kube), "ConfigMap ")
	}
	deployment := line(apiservers.OpenShift, apiservers.OpenShift.Namespace)
	shown("Companion, Deployment, External", deployment, line(apiservers.Kube, fixture.Namespace), line(apiservers.OAuth, apiservers.OAuth.Namespace))

	// The DaemonSet's agents have no API server pods that show folders: the endpoints do.
	op.Configure(config("Companion", "delivery: DaemonSet\n  nodeSelector: {kubernetes.io/os: linux}"))
	shown("Companion, Deployment, DaemonSet", deployment, line(apiservers.Kube, fixture.Namespace), line(apiservers.OAuth, fixture.Namespace))
	op.Configure("targets: []\n")
	op.AwaitNothingLeft()
}
