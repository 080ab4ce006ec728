//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
)

// anywhere is the name of the objects of KMSHealth and of similar resources.
const anywhere = "anywhere"

// reportingTo returns a reporter that may write to the status of all objects named anywhere.
func reportingTo(t *testing.T) *reporter {
	t.Helper()
	r := newReporter(t)
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	role, err := client.RbacV1().ClusterRoles().Create(soon(t), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "anywhere-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*/status"}, ResourceNames: []string{anywhere}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(soon(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: r.user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.token()
	r.plugin("1")
	return r
}

func (r *reporter) configureObject(object string) {
	r.t.Helper()
	r.write([]byte(fmt.Sprintf(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: 1s}
serving: {address: '%s'}
destination: {object: {%s}, kubeconfig: %s, writeTimeout: 2s}
plugins: [{endpoint: '%s', role: Write}]
`, r.serving, object, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile), r.endpoint("1"))))
}

// reportsTo waits until the status of an object has the reporter's condition.
func (r *reporter) reportsTo(gvr schema.GroupVersionResource, inNamespace string) {
	r.t.Helper()
	eventually(r.t, "it reports to "+gvr.Resource, func() bool {
		u, err := administrator(r.t).Resource(gvr).Namespace(inNamespace).Get(soon(r.t), anywhere, metav1.GetOptions{})
		return err == nil && len(entriesOf(conditionIn(u, contract.ConditionType(r.node)))) == 1
	})
}

// kmsHealthCRD returns the path of the shipped CRD, with parts replaced.
func kmsHealthCRD(t *testing.T, replace ...string) string {
	t.Helper()
	text := disk.Read(t, "../../manifests/kubernetes/crd.yaml")
	path := filepath.Join(t.TempDir(), "crd.yaml")
	disk.Write(t, path, []byte(strings.NewReplacer(replace...).Replace(string(text))))
	return path
}

func create(t *testing.T, gvr schema.GroupVersionResource, inNamespace string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": contract.KMSHealths.Kind, "metadata": map[string]any{"name": anywhere}}}
	if _, err := administrator(t).Resource(gvr).Namespace(inNamespace).Create(soon(t), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestDestinationWhoseCRDAndObjectComeLaterIsAwaited(t *testing.T) {
	r := reportingTo(t)
	r.configureObject("group: kmshealth.openshift.io, version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " + anywhere)
	r.start()
	r.writes("no_resource")
	if err := cluster.InstallCRDs(soon(t), kmsHealthCRD(t)); err != nil {
		t.Fatal(err)
	}
	r.writes("no_object")
	gvr := schema.GroupVersionResource{Group: "kmshealth.openshift.io", Version: "v1alpha1", Resource: "kmshealths"}
	create(t, gvr, "")
	r.reportsTo(gvr, "")
}

func TestDestinationInANamespace(t *testing.T) {
	gvr, object := another(t, "example.com", "default", "scope: Cluster", "scope: Namespaced")
	r := reportingTo(t)
	r.configureObject(object) // without its namespace
	r.start()
	r.writes("no_resource")
	r.configureObject(object + ", namespace: default")
	r.reportsTo(gvr, "default")
}

const subresources = `    subresources:
      status: {}
`

const listOfConditions = `                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
`

// another installs the CRD of KMSHealth in another group, with parts replaced, and creates an object. It returns the
// resource, and the object as a destination.
func another(t *testing.T, group, inNamespace string, replace ...string) (gvr schema.GroupVersionResource, destination string) {
	t.Helper()
	gvr = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "kmshealths"}
	if err := cluster.InstallCRDs(soon(t), kmsHealthCRD(t, append([]string{"kmshealth.openshift.io", group}, replace...)...)); err != nil {
		t.Fatal(err)
	}
	create(t, gvr, inNamespace)
	return gvr, "group: " + group + ", version: v1alpha1, resource: kmshealths, kind: KMSHealth, name: " + anywhere
}

// An apply to an atomic list removes the conditions of all other managers. The first write shows that, so the reporter
// must not write again until the configuration names another destination.
func TestDestinationWithAnAtomicListOfConditionsIsWrittenOnce(t *testing.T) {
	gvr, destination := another(t, "atomic.example.com", "", listOfConditions, "")
	r := reportingTo(t)
	r.configureObject(destination)
	r.start()
	r.writes("atomic_list")
	r.logged("Failed to write reports", "x-kubernetes-list-type: map")
	u, err := administrator(t).Resource(gvr).Get(soon(t), anywhere, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	written := conditionIn(u, contract.ConditionType(r.node))
	if written == nil {
		t.Fatalf("there is no condition: %v", u.Object["status"])
	}
	time.Sleep(5 * time.Second) // some intervals
	again, err := administrator(t).Resource(gvr).Get(soon(t), anywhere, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.GetResourceVersion() != u.GetResourceVersion() {
		t.Errorf("it was written again: %v", again.Object["status"])
	}
	if _, view := r.get("/healthz?verbose"); !strings.Contains(view, "[-]write failed") || !strings.Contains(view, "x-kubernetes-list-type: map") {
		t.Errorf("/healthz?verbose: %s", view)
	}
	gvr, destination = another(t, "maps.example.com", "")
	r.configureObject(destination)
	r.reportsTo(gvr, "")
}

// kube-apiserver gives the same answer as for an object that does not exist.
func TestDestinationWithoutStatusSubresource(t *testing.T) {
	_, destination := another(t, "nostatus.example.com", "", subresources, "")
	r := reportingTo(t)
	r.configureObject(destination)
	r.start()
	r.writes("no_object")
	r.logged("Failed to write reports", "does not exist, or its CRD has no status subresource")
}
