//go:build integration

package manifests

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/reporters"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// quickstart is docs/quickstart/kubernetes.md, on a cluster that has nothing of OpenShift:
// manifests/kubernetes as they stand, the operator, a reporter beside a real plugin.
type quickstart struct {
	*installation
	plugin     *kmsplugin.Plugin
	kubeconfig string
}

func newQuickstart(t *testing.T) *quickstart {
	t.Helper()
	for _, crd := range crdsOf(t, plain) {
		if strings.HasSuffix(crd, ".openshift.io") && !strings.HasSuffix(crd, ".kmshealth.openshift.io") {
			t.Fatalf("CRD %s is installed", crd)
		}
	}
	binary, err := program.Build(t.TempDir(), "cmd/kms-health-operator")
	if err != nil {
		t.Fatal(err)
	}
	reporter, err := program.Build(t.TempDir(), "cmd/kms-health-reporter")
	if err != nil {
		t.Fatal(err)
	}
	dir := program.SocketDir(t)
	plugin, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + filepath.Join(dir, "kms-1.sock"), StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plugin.Close() })
	h := newInstallation(t, plain, binary)
	running, err := reporters.Start(reporters.Options{
		Cluster: plain.ControlPlane, Binary: reporter, Dir: t.TempDir(), Sockets: func(string) string { return dir },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Stop)
	h.shipped = strings.Replace(h.shipped, "interval: 30s", "interval: 1s", 1)
	h.configure(h.shipped)
	h.runStatic("kube-system", map[string]string{"component": "kube-apiserver"}, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}})
	return &quickstart{h, plugin, adminKubeconfig(t, plain)}
}

// shows waits until kubectl shows one object, with this roll-up, and every node reporting.
func (q *quickstart) shows(degraded, reason string) {
	q.t.Helper()
	eventually(q.t, degraded+" "+reason, func() error {
		table, err := install.Kubectl(q.t.Context(), nil, "--kubeconfig", q.kubeconfig, "get", "kmshealths")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(string(table)), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "NAME") {
			return fmt.Errorf("%s", table)
		}
		if got := strings.Fields(lines[1]); got[0] != "kube-apiserver" || len(got) < 5 || got[1] != degraded || got[2] != reason || got[3] != "True" {
			return fmt.Errorf("%s", table)
		}
		return nil
	})
}

// status runs `kubectl kms-health status`, and wants a line with these words.
func (q *quickstart) status(words ...string) {
	q.t.Helper()
	binary, err := program.Build(q.t.TempDir(), "cmd/kubectl-kms_health")
	if err != nil {
		q.t.Fatal(err)
	}
	out, err := exec.Command(binary, "status", "--kubeconfig", q.kubeconfig).CombinedOutput()
	found := slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(strings.Fields(line), word) })
	})
	if !found {
		q.t.Errorf("no line with %q: %v\n%s", words, err, out)
	}
}

// removed lets the operator remove everything.
func (q *quickstart) removed() {
	q.t.Helper()
	q.removesAll()
	list, err := plain.client.Resource(contract.KMSHealths.GVR()).List(q.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		q.t.Errorf("%d objects are left: %v", len(list.Items), err)
	}
}

func TestPlainKubernetesShowsAnUnhealthyPluginAndIsRemoved(t *testing.T) {
	q := newQuickstart(t)
	q.start()
	q.shows("False", "AsExpected")
	if err := q.plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy}); err != nil {
		t.Fatal(err)
	}
	q.shows("True", "PluginUnhealthy")
	q.status("kube-apiserver", "master-0", "unhealthy")
	o, err := plain.client.Resource(contract.KMSHealths.GVR()).Get(t.Context(), "kube-apiserver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := operatorcr.Read(o)
	if len(status.Reports) != 1 || status.Reports[0].Node != "master-0" || !status.Reports[0].Ours {
		t.Errorf("%+v", status.Reports)
	}
	if err := q.plugin.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	q.shows("False", "AsExpected")
	q.removed()
	patchesOneStatus(t, "/apis/kmshealth.openshift.io/v1alpha1/kmshealths/kube-apiserver/status")
}

// patchesOneStatus fails unless the reporters sent PATCHes of one status, and nothing else.
func patchesOneStatus(t *testing.T, path string) {
	t.Helper()
	if err := plain.AuditFence(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, err := plain.AuditEvents(controlplane.ServiceAccountUser("kms-health", "kms-health-reporter-kube-apiserver"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Verb != "patch" || !strings.HasPrefix(e.RequestURI, path+"?") {
			t.Errorf("%s %s", e.Verb, e.RequestURI)
		}
		if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden {
			t.Logf("refused, as before a right is active: %s", e.ResponseStatus.Message)
		}
	}
	if len(events) == 0 {
		t.Error("no request of the reporters is in the audit log")
	}
}

func crdsOf(t *testing.T, s *cluster) (names []string) {
	t.Helper()
	list, err := s.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	return names
}

// The operator may patch and delete the object itself; reporters must not get that from it.
func TestReportersRoleHoldsNoMoreThanTheStatusOfAKMSHealth(t *testing.T) {
	operator := plain.as(t)
	for name, verb := range map[string]string{"patch of the object": "patch", "deletion of the object": "delete"} {
		t.Run(name, func(t *testing.T) {
			refused(t, operator, object("rbac.authorization.k8s.io/v1", "ClusterRole", "", reporter, map[string]any{
				"rules": []any{rule(contract.KMSHealths.Group, contract.KMSHealths.Plural, list("kube-apiserver"), list(verb))},
			}), "and nothing else")
		})
	}
	for name, refuse := range map[string]*unstructured.Unstructured{
		"reading of the status": object("rbac.authorization.k8s.io/v1", "ClusterRole", "", reporter, map[string]any{
			"rules": []any{rule(contract.KMSHealths.Group, "kmshealths/status", list("kube-apiserver"), list("get"))},
		}),
		"another target's status": object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "kms-health-reporter-other", map[string]any{
			"rules": []any{rule(contract.KMSHealths.Group, "kmshealths/status", list("kube-apiserver"), list("patch"))},
		}),
	} {
		t.Run(name, func(t *testing.T) { refused(t, plain.config, refuse, "and nothing else") }) // an administrator
	}
}
