//go:build integration

package rollup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// What an administrator sees by kubectl: the ClusterOperator's columns, what it
// names, and the table of kubectl kms-health with its exit code.
func TestAdministratorSeesAFaultAndItsEnd(t *testing.T) {
	op := fixture.NewOperator(t, "--degraded-inertia=2s", "--leader-elect=true")
	kubectl := fixture.NewKubectl(t)
	if out, code := kubectl("kms-health", "status"); code != 2 {
		t.Errorf("nothing is reported: exit code %d\n%s", code, out)
	}
	reporters := fixture.StartReporting(t, op, nil)
	fixture.AwaitClusterOperator(t, "True False False True")
	if out, code := kubectl("get", "clusteroperators", "kms-health"); code != 0 || !strings.Contains(squeezed(out), "True False False") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := kubectl("kms-health", "status"); code != 0 || strings.Count(out, "(write)  healthy") != 3 {
		t.Errorf("everything is healthy: exit code %d\n%s", code, out)
	}
	followRelatedObjects(t)

	if err := reporters[1].Plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}); err != nil {
		t.Fatal(err)
	}
	since := fixture.AwaitRollUp(t, apiservers.Kube, rollup.Degraded, operatorcr.True, rollup.PluginUnhealthy).LastTransitionTime
	if out, code := kubectl("kms-health", "status"); code != 1 || !strings.Contains(out, "master-1  1 (write)  unhealthy") {
		t.Errorf("a plugin is unhealthy: exit code %d\n%s", code, out)
	}
	if out, code := kubectl("kms-health", "explain", "master-1"); code != 1 || !strings.Contains(out, "vault is sealed") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	fixture.AwaitClusterOperator(t, "True False True False")
	if early := since.Add(2 * time.Second); time.Now().Before(early) {
		t.Errorf("degraded before %s", early)
	}
	if c := fixture.ClusterOperator(t)["Degraded"]; c.Reason != "KMSPlugins_PluginUnhealthy" || !strings.Contains(c.Message, "kube-apiserver: key 1 on node master-1: unhealthy") {
		t.Errorf("%+v", c)
	}
	if out, _ := kubectl("get", "events", "-n", fixture.Namespace, "--field-selector", "type=Warning,reason=PluginUnhealthy"); !strings.Contains(out, "KMSPluginsDegraded is True") {
		t.Errorf("no event reports it:\n%s", out)
	}
	if c := fixture.ClusterOperator(t)["Upgradeable"]; c.Reason != "PluginUnhealthy" {
		t.Errorf("%+v", c)
	}
	if err := reporters[1].Plugin.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitClusterOperator(t, "True False False True")
	if out, code := kubectl("kms-health", "status"); code != 0 {
		t.Errorf("everything has recovered: exit code %d\n%s", code, out)
	}
	fixture.RemoveTarget(t, op, reporters)

	// Offline, of what a must-gather would hold.
	old, err := health.EncodeMessage([]health.Entry{{KeyID: "1", KEKID: "k", Status: health.Healthy, LastChecked: time.Now().Add(-time.Hour), Interval: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if err := apiservers.Kube.Report(t.Context(), fixture.Client, "master-0", old, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	gathered, _ := kubectl("get", "kubeapiserver", "cluster", "-o", "yaml", "--show-managed-fields")
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(gathered), 0o600); err != nil {
		t.Fatal(err)
	}
	// Written now, and an hour old: the node's clock is behind.
	if out, code := kubectl("kms-health", "status"); code != 2 || !strings.Contains(out, " clock differs ") {
		t.Errorf("an hour old: exit code %d\n%s", code, out)
	}
	if out, code := kubectl("kms-health", "status", "--from-file", file); code != 2 || !strings.Contains(out, "master-0") {
		t.Errorf("from a file: exit code %d\n%s", code, out)
	}
	removeReports(t, apiservers.Kube)
}

func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

// followRelatedObjects gets each of them, as `oc adm inspect` does.
func followRelatedObjects(t *testing.T) {
	t.Helper()
	related, _, _ := unstructured.NestedSlice(fixture.ClusterOperatorObject(t).Object, "status", "relatedObjects")
	if len(related) < 7 {
		t.Errorf("%d related objects: %v", len(related), related)
	}
	lists, err := fixture.Kube.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range related {
		r, _ := r.(map[string]any)
		text := func(name string) string { s, _ := r[name].(string); return s }
		found := false
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil || gv.Group != text("group") {
				continue
			}
			if _, err := fixture.Client.Resource(gv.WithResource(text("resource"))).Namespace(text("namespace")).Get(t.Context(), text("name"), metav1.GetOptions{}); err == nil {
				found = true
			}
		}
		if !found {
			t.Errorf("%v cannot be got", r)
		}
	}
}
