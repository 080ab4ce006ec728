//go:build integration

package integration

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

// anywhere is the name of the KMSHealth.
const anywhere = "anywhere"

const toKMSHealth = "resource: kmshealths, name: " + anywhere

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// define installs the CRD KMSHealth without a part of it, until the test ends.
func define(t *testing.T, without string) {
	text := disk.Read(t, "../../manifests/kubernetes/crd.yaml")
	path := filepath.Join(t.TempDir(), "crd.yaml")
	disk.Write(t, path, []byte(strings.Replace(string(text), without, "", 1)))
	must.Succeed(t, cluster.InstallCRDs(soon(t), path))
	t.Cleanup(func() {
		name, client := contract.KMSHealths.GVR().GroupResource().String(), administrator().Resource(definitions)
		must.Succeed(t, client.Delete(soon(t), name, metav1.DeleteOptions{}))
		eventually(t, "the CRD is gone", func() bool {
			_, err := client.Get(soon(t), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
}

func createKMSHealth(t *testing.T, name string) {
	o := contract.ResourceFor(contract.KMSHealthsPlural, name)
	_, err := administrator().Resource(o.GVR()).Create(soon(t), &unstructured.Unstructured{Object: o.WithStatus(nil)},
		metav1.CreateOptions{})
	must.Succeed(t, err)
}

func kmsHealth(t *testing.T, name string) *unstructured.Unstructured {
	u, err := administrator().Resource(contract.KMSHealths.GVR()).Get(soon(t), name, metav1.GetOptions{})
	must.Succeed(t, err)
	return u
}

// reportToKMSHealth starts a reporter that may write to the status of all KMSHealths.
func reportToKMSHealth(t *testing.T) *reporter {
	r := newReporter(t)
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig()).RbacV1()
	role, err := client.ClusterRoles().Create(soon(t), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "anywhere-"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{contract.KMSHealths.Group},
			Resources: []string{"kmshealths/status"}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	must.Succeed(t, err)
	_, err = client.ClusterRoleBindings().Create(soon(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: r.user()}},
	}, metav1.CreateOptions{})
	must.Succeed(t, err)
	r.plugin("1")
	r.configure(toKMSHealth, "1:Write")
	r.start()
	return r
}

// reportsTo waits until the status of a KMSHealth has the reporter's condition.
func (r *reporter) reportsTo(name string) {
	eventually(r.t, "it reports to "+name, func() bool { return len(entriesIn(kmsHealth(r.t, name), r.node)) == 1 })
}

func TestDestinationWhoseCRDAndObjectComeLaterIsAwaited(t *testing.T) {
	r := reportToKMSHealth(t)
	r.writes("no_resource")
	define(t, "")
	r.writes("no_object")
	createKMSHealth(t, anywhere)
	r.reportsTo(anywhere)
}

// An apply to an atomic list removes the conditions of all other managers. The first write shows that, so the reporter
// must not write again until the configuration names another destination.
func TestDestinationWithAnAtomicListOfConditionsIsWrittenOnce(t *testing.T) {
	define(t, "                x-kubernetes-list-type: map\n                x-kubernetes-list-map-keys: [type]\n")
	createKMSHealth(t, anywhere)
	createKMSHealth(t, "other")
	r := reportToKMSHealth(t)
	r.writes("atomic_list")
	r.logged("Failed to write reports", "x-kubernetes-list-type: map")
	u := kmsHealth(t, anywhere)
	if len(entriesIn(u, r.node)) != 1 {
		t.Fatalf("there is no condition: %v", u.Object["status"])
	}
	time.Sleep(5 * time.Second) // some intervals
	if again := kmsHealth(t, anywhere); again.GetResourceVersion() != u.GetResourceVersion() {
		t.Errorf("it was written again: %v", again.Object["status"])
	}
	_, view := r.get("/healthz?verbose")
	if !strings.Contains(view, "[-]write failed") || !strings.Contains(view, "x-kubernetes-list-type: map") {
		t.Errorf("/healthz?verbose: %s", view)
	}
	r.configure("resource: kmshealths, name: other", "1:Write")
	r.reportsTo("other")
}

// kube-apiserver gives the same answer as for an object that does not exist.
func TestDestinationWithoutStatusSubresource(t *testing.T) {
	define(t, "    subresources:\n      status: {}\n")
	createKMSHealth(t, anywhere)
	r := reportToKMSHealth(t)
	r.writes("no_object")
	r.logged("Failed to write reports", "does not exist, or its CRD has no status subresource")
}
