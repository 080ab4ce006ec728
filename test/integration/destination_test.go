//go:build integration

package integration

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
)

// anywhere is the name of the objects of KMSHealth and of similar resources.
const anywhere = "anywhere"

// destination is an object of the CRD KMSHealth in another group, or of a CRD like it.
type destination struct{ group, namespace string }

// object returns the destination as in a reporter's file.
func (d destination) object() string {
	return "object: {group: " + d.group + ", version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " +
		anywhere + "}"
}

func (d destination) resource() dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Group: d.group, Version: "v1alpha1", Resource: "kmshealths"}
	return administrator().Resource(gvr).Namespace(d.namespace)
}

// define installs the CRD, with parts replaced.
func (d destination) define(t *testing.T, replace ...string) {
	text := disk.Read(t, "../../manifests/kubernetes/crd.yaml")
	path := filepath.Join(t.TempDir(), "crd.yaml")
	replacer := strings.NewReplacer(append([]string{contract.KMSHealths.Group, d.group}, replace...)...)
	disk.Write(t, path, []byte(replacer.Replace(string(text))))
	must(t, cluster.InstallCRDs(soon(t), path))
}

func (d destination) create(t *testing.T) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: d.group, Version: "v1alpha1", Kind: contract.KMSHealths.Kind})
	u.SetName(anywhere)
	_, err := d.resource().Create(soon(t), u, metav1.CreateOptions{})
	must(t, err)
}

func (d destination) get(t *testing.T) *unstructured.Unstructured {
	u, err := d.resource().Get(soon(t), anywhere, metav1.GetOptions{})
	must(t, err)
	return u
}

// reportTo starts a reporter that may write to the status of all objects named anywhere, with a destination.
func reportTo(t *testing.T, to string) *reporter {
	r := newReporter(t)
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig()).RbacV1()
	role, err := client.ClusterRoles().Create(soon(t), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "anywhere-"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*/status"},
			ResourceNames: []string{anywhere}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.ClusterRoleBindings().Create(soon(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: r.user()}},
	}, metav1.CreateOptions{})
	must(t, err)
	r.plugin("1")
	r.configure(to, "1:Write")
	r.start()
	return r
}

// reportsTo waits until the status of an object has the reporter's condition.
func (r *reporter) reportsTo(d destination) {
	eventually(r.t, "it reports to "+d.group, func() bool { return len(entriesIn(d.get(r.t), r.node)) == 1 })
}

func TestDestinationWhoseCRDAndObjectComeLaterIsAwaited(t *testing.T) {
	d := destination{group: contract.KMSHealths.Group}
	r := reportTo(t, d.object())
	r.writes("no_resource")
	d.define(t)
	r.writes("no_object")
	d.create(t)
	r.reportsTo(d)
}

func TestDestinationInANamespace(t *testing.T) {
	d := destination{group: "example.com", namespace: "default"}
	d.define(t, "scope: Cluster", "scope: Namespaced")
	d.create(t)
	r := reportTo(t, d.object()) // without its namespace
	r.writes("no_resource")
	r.configure(strings.Replace(d.object(), "}", ", namespace: default}", 1), "1:Write")
	r.reportsTo(d)
}

// An apply to an atomic list removes the conditions of all other managers. The first write shows that, so the reporter
// must not write again until the configuration names another destination.
func TestDestinationWithAnAtomicListOfConditionsIsWrittenOnce(t *testing.T) {
	d, other := destination{group: "atomic.example.com"}, destination{group: "maps.example.com"}
	d.define(t, "                x-kubernetes-list-type: map\n                x-kubernetes-list-map-keys: [type]\n", "")
	d.create(t)
	r := reportTo(t, d.object())
	r.writes("atomic_list")
	r.logged("Failed to write reports", "x-kubernetes-list-type: map")
	u := d.get(t)
	if len(entriesIn(u, r.node)) != 1 {
		t.Fatalf("there is no condition: %v", u.Object["status"])
	}
	time.Sleep(5 * time.Second) // some intervals
	if again := d.get(t); again.GetResourceVersion() != u.GetResourceVersion() {
		t.Errorf("it was written again: %v", again.Object["status"])
	}
	_, view := r.get("/healthz?verbose")
	if !strings.Contains(view, "[-]write failed") || !strings.Contains(view, "x-kubernetes-list-type: map") {
		t.Errorf("/healthz?verbose: %s", view)
	}
	other.define(t)
	other.create(t)
	r.configure(other.object(), "1:Write")
	r.reportsTo(other)
}

// kube-apiserver gives the same answer as for an object that does not exist.
func TestDestinationWithoutStatusSubresource(t *testing.T) {
	d := destination{group: "nostatus.example.com"}
	d.define(t, "    subresources:\n      status: {}\n", "")
	d.create(t)
	r := reportTo(t, d.object())
	r.writes("no_object")
	r.logged("Failed to write reports", "does not exist, or its CRD has no status subresource")
}
