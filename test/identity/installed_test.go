//go:build integration

package identity

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	manifests "github.com/kms-health/kms-health/test/manifests/install"
)

// installed is a control plane with the shipped manifests/ and the components that add rights. Its callers have
// stolen tokens.
type installed struct {
	*controlplane.ControlPlane
	overlay       string
	home, servers string // the namespaces of the operator, and of an API server with a Deployment
	server        string // the name of that API server
	admin         *caller
	operator      *caller
	bound, minted *caller // reporters, as in the tables
	kube          *kubernetes.Clientset
}

func (c *installed) openShift() bool { return c.overlay == manifests.OpenShift }

// operatorResource returns the resource with the reports about kube-apiserver.
func (c *installed) operatorResource() operatorResource {
	if c.openShift() {
		return operatorResources[0]
	}
	return kmsHealth
}

// newInstalled installs an overlay, and creates as the operator the objects that the operator creates.
func newInstalled(t *testing.T, overlay string) *installed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	c := &installed{overlay: overlay, home: manifests.Namespace(overlay), servers: "kube-system", server: target}
	options, components := controlplane.Options{}, []string{"deployment/kubernetes", "start-during-plugin-outage"}
	if c.openShift() {
		options.CRDs, components[0] = controlplane.TechPreviewNoUpgrade, "deployment"
		c.servers, c.server = "openshift-apiserver", "openshift-apiserver"
	}
	c.ControlPlane = controlplane.StartForTest(t, options)
	c.kube = kubernetes.NewForConfigOrDie(c.RESTConfig())
	if c.openShift() {
		must.Succeed(t, c.ApplyOpenShiftConfig(ctx, options.CRDs))
		must.Succeed(t, apiservers.CreateNamespaces(ctx, c.kube))
	}
	must.Succeed(t, manifests.Apply(ctx, c.RESTConfig(), overlay, components...))
	c.admin = newCaller(t, "administrator", c.RESTConfig())
	c.awaitPolicies(t)
	c.operator = c.as(t, "operator", operatorAccount, nil)
	c.deliver(t)
	return c
}

// as returns a caller with a token for a ServiceAccount in the operator's namespace.
func (c *installed) as(t *testing.T, name, account string, to *authenticationv1.BoundObjectReference) *caller {
	t.Helper()
	token, err := c.ServiceAccountToken(soon(t), c.home, account, controlplane.TokenOptions{BoundTo: to})
	must.Succeed(t, err)
	return newCaller(t, name, c.RESTConfigAs(controlplane.Credential{Token: token}))
}

// awaitPolicies creates one more policy, and waits until it denies. Then the earlier policies are active, too.
func (c *installed) awaitPolicies(t *testing.T) {
	t.Helper()
	const group = "admissionregistration.k8s.io/v1"
	for _, o := range []fields{
		{"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": fields{"name": "last"}, "spec": fields{
			"matchConstraints": fields{"resourceRules": []any{fields{"apiGroups": []any{""}, "apiVersions": []any{"v1"},
				"operations": []any{"CREATE"}, "resources": []any{"configmaps"}}}},
			"validations": []any{fields{"expression": "object.metadata.name != 'last'"}}}},
		{"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": fields{"name": "last"},
			"spec": fields{"policyName": "last", "validationActions": []any{"Deny"}}},
	} {
		c.must(t, c.admin, c.write(t, o, "install", false))
	}
	last := fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": "last", "namespace": "default"}}
	eventually(t, "policies are active", func() error {
		if got := c.admin.do(t, c.write(t, last, "x", true)); got.layer() != "policy last" {
			return fmt.Errorf("%d %s", got.code, got.message)
		}
		return nil
	})
}

// deliver creates the operator's objects for an API server. The operator must be allowed to create them.
func (c *installed) deliver(t *testing.T) {
	t.Helper()
	_, err := c.kube.CoreV1().Nodes().Create(soon(t), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, metav1.CreateOptions{})
	need(t, err)
	in := c.input(target, v1alpha1.ModeCompanionPod)
	pod := c.companion()
	all := append(in.Identity(), &unstructured.Unstructured{Object: pod})
	if d := in.Destination(); d != nil {
		all = append(all, d)
	}
	for _, o := range all {
		c.must(t, c.operator, c.write(t, o.Object, operatorManager, false))
	}
	created, err := c.kube.CoreV1().Pods(c.home).Get(soon(t), pod["metadata"].(fields)["name"].(string), metav1.GetOptions{})
	must.Succeed(t, err)
	c.bound = c.as(t, "bound to node-a", account, &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: created.Name, UID: created.UID})
	c.minted = c.as(t, "minted", account, nil)
	c.must(t, c.minted, c.operatorResource().condition(t, "node-a"))
}

// input returns the operator's input for an API server.
func (c *installed) input(name string, mode v1alpha1.Mode) *objects.Input {
	of := &v1alpha1.APIServer{Name: name, Namespace: c.servers, Container: "api", Mode: mode, ConfigSource: v1alpha1.ConfigSourceAnnotation,
		Resource: v1alpha1.Resource(c.operatorResource().resource)}
	if mode == v1alpha1.ModeSidecar {
		of.Deployment = "apiserver"
	}
	return &objects.Input{Config: &v1alpha1.OperatorConfiguration{Image: "reporter:1"}, Namespace: c.home, Target: of,
		OpenShift: c.openShift(), CA: []byte("CA")}
}

var plugins = []v1alpha1.Plugin{{KeyID: "1", Endpoint: "unix:///var/run/kmsplugin/kms-1.sock", Role: "Write"}}

// socketFolder is the folder of the plugins' sockets.
var socketFolder = objects.Folder{MountPath: "/var/run/kmsplugin", HostPath: "/var/run/kmsplugin"}

// companion returns a companion pod as the operator creates it, with the folder for samples. Without folders it has
// socketFolder.
func (c *installed) companion(folders ...objects.Folder) fields {
	in := c.input(target, v1alpha1.ModeCompanionPod)
	if len(folders) == 0 {
		folders = []objects.Folder{socketFolder}
	}
	pod := in.CompanionPod(objects.APIServerPod{Node: "node-a", UID: "0a1b2c3d", Folders: folders}, plugins).Object
	withState(pod["spec"].(fields))
	return pod
}

// withState adds the writable folder, unless the PodSpec has it.
func withState(spec fields) {
	is := func(v any) bool { return v.(fields)["name"] == contract.StateVolume }
	if slices.ContainsFunc(spec["volumes"].([]any), is) {
		return
	}
	spec["volumes"] = append(spec["volumes"].([]any), fields{"name": contract.StateVolume, "emptyDir": fields{"sizeLimit": "8Mi"}})
	container := spec["containers"].([]any)[0].(fields)
	container["volumeMounts"] = append(container["volumeMounts"].([]any), fields{"name": contract.StateVolume, "mountPath": contract.StateFolder})
}

// deployment creates the Deployment of an API server, and returns the object that the operator applies to it.
func (c *installed) deployment(t *testing.T) (injection fields) {
	t.Helper()
	labels := map[string]string{"apiserver": "true"}
	folder := func(name, at string) corev1.VolumeMount { return corev1.VolumeMount{Name: name, MountPath: at} }
	name := map[bool]string{true: "apiserver", false: "kube-apiserver"}[c.openShift()]
	d, err := c.kube.AppsV1().Deployments(c.servers).Create(soon(t), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"theirs": "1"}},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "api", Image: "api:1", VolumeMounts: []corev1.VolumeMount{folder("sockets", "/var/run/kmsplugin"), folder("etcd-client", "/etcd"), folder("audit", "/var/log")}}},
				Volumes: []corev1.Volume{
					{Name: "sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
					{Name: "etcd-client", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "etcd-client"}}},
					{Name: "audit", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/log/openshift-apiserver"}}},
					{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}},
				},
			},
		}},
	}, metav1.CreateOptions{FieldManager: "theirs"})
	must.Succeed(t, err)
	template, err := c.input(c.server, v1alpha1.ModeSidecar).Sidecar(&d.Spec.Template.Spec, plugins)
	must.Succeed(t, err)
	withState(template["spec"].(fields))
	template["metadata"].(fields)["annotations"].(fields)[contract.PodHashAnnotation] = "1"
	return fields{"apiVersion": "apps/v1", "kind": "Deployment", "spec": fields{"template": template},
		"metadata": fields{"name": name, "namespace": c.servers, "uid": string(d.UID)}}
}

// write returns the operator's request to write an object: it creates a pod, and applies other objects.
func (c *installed) write(t *testing.T, o fields, manager string, dry bool) request {
	t.Helper()
	metadata := o["metadata"].(fields)
	namespace, _ := metadata["namespace"].(string)
	path := expand(paths[o["kind"].(string)], namespace)
	query := "?fieldManager=" + manager
	if dry {
		query += "&dryRun=All"
	}
	if o["kind"] == "Pod" {
		return request{http.MethodPost, strings.TrimSuffix(path, "/") + query, "", text(t, o)}
	}
	return request{http.MethodPatch, path + metadata["name"].(string) + query + "&force=true", applyType, text(t, o)}
}

func (c *installed) must(t *testing.T, who *caller, r request) {
	t.Helper()
	eventually(t, who.name+" may", func() error { // RBAC reads from caches
		if got := who.do(t, r); got.code/100 != 2 {
			return fmt.Errorf("%s %s: %d %s", r.method, r.path, got.code, got.message)
		}
		return nil
	})
}

// with returns a copy of an object with a value at a path of names and indexes. nil removes the field. If the field is
// a list and the value is not, the value is appended.
func with(o fields, value any, path ...any) fields {
	o = runtime.DeepCopyJSON(o)
	var at any = o
	for _, step := range path[:len(path)-1] {
		switch step := step.(type) {
		case int:
			at = at.([]any)[step]
		case string:
			parent := at.(fields)
			if parent[step] == nil {
				parent[step] = fields{}
			}
			at = parent[step]
		}
	}
	switch last := path[len(path)-1].(type) {
	case int:
		at.([]any)[last] = value
	case string:
		if list, is := at.(fields)[last].([]any); is && value != nil {
			if _, whole := value.([]any); !whole {
				value = slices.Concat(list, []any{value})
			}
		}
		at.(fields)[last] = value
		if value == nil {
			delete(at.(fields), last)
		}
	}
	return o
}

// layer returns the layer that refused the request.
func (a answer) layer() string {
	_, policy, found := strings.Cut(a.message, "ValidatingAdmissionPolicy '")
	policy, _, _ = strings.Cut(policy, "'")
	switch {
	case a.code/100 == 2:
		return allowed
	case found:
		return "policy " + policy
	case a.code == http.StatusForbidden && (strings.Contains(a.message, "attempting to grant RBAC") || strings.Contains(a.message, "must have cluster-admin")):
		return escalation
	case a.code == http.StatusForbidden && strings.Contains(a.message, " cannot "):
		return byRights
	case a.code == http.StatusForbidden:
		return plugin
	case a.code == http.StatusUnprocessableEntity:
		return validation
	default:
		return fmt.Sprintf("%d", a.code)
	}
}

// counts returns, as text, how many requests each layer refused.
func counts(by map[string]int) string {
	var all []string
	for _, layer := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%s %d", layer, by[layer]))
	}
	return strings.Join(all, ", ")
}
