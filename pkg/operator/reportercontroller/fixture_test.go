package reportercontroller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/harness/must"
)

// fixture returns a snapshot of a target with all sources known and no objects.
func fixture(t testing.TB, mode v1alpha1.Mode, more ...func(*Snapshot)) *Snapshot {
	t.Helper()
	config, err := v1alpha1.DecodeOperator([]byte(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
image: reporter:1
apiServers:
- resource: kubeapiservers
  namespace: ns
  podSelector: {app: api}
  container: api
  mode: ` + string(mode)))
	must.Succeed(t, err)
	s := &Snapshot{
		Pods: []*corev1.Pod{}, Sets: map[string]encryptionconfig.Set{liveRevision: *set(1)},
	}
	s.Config, s.Target, s.Namespace = config, &config.APIServers[0], "kms-health"
	s.Target.Name = "api" // short in the names of objects
	s.OwnerUID = "owner"
	for _, m := range more {
		m(s)
	}
	return s
}

// now is a time of deletion.
var now = metav1.NewTime(time.Unix(1e9, 0))

// inDeployment means that the operator adds the reporter's container to a Deployment.
func inDeployment(s *Snapshot) { s.Target.Deployment = "apiserver" }

// set returns a plugin set. The first plugin is the write key's.
func set(ids ...int) *encryptionconfig.Set {
	c := encryptionconfig.Config{Plugins: []v1alpha1.Plugin{}}
	for i, id := range ids {
		role := v1alpha1.RoleRead
		if i == 0 {
			role = v1alpha1.RoleWrite
		}
		c.Plugins = append(c.Plugins, v1alpha1.Plugin{
			KeyID: fmt.Sprint(id), Endpoint: fmt.Sprintf("unix:///var/run/kmsplugin/kms-%d.sock", id), Role: role,
			Timeout: v1alpha1.Duration{Duration: 3 * time.Second},
		})
	}
	return &encryptionconfig.Set{Known: true, Config: c}
}

// apiPod returns an API server's pod with its sockets in an emptyDir; see onHost.
func apiPod(node, uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "api-" + node + "-" + uid, Namespace: "ns", UID: types.UID(uid),
			Labels: map[string]string{"app": "api"}},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{{Name: "api", Image: "api",
				VolumeMounts: []corev1.VolumeMount{{Name: "sockets", MountPath: "/var/run/kmsplugin"}}}},
			Volumes: []corev1.Volume{{Name: "sockets",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "api", ContainerID: "containerd://" + uid},
		}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func onHost(p *corev1.Pod) {
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/kms"}}
}

// withOpenShiftsReporter adds the reporter container that OpenShift's operators add.
func withOpenShiftsReporter(p *corev1.Pod) {
	p.Spec.InitContainers = []corev1.Container{{Name: "kms-health-reporter"}}
}

// withToken mounts the Secret with the token of sidecars.
func withToken(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "token",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: objects.TokenName("api")}}})
}

func revision(r string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["revision"] = r }
}

func pods(all ...*corev1.Pod) func(*Snapshot) { return func(s *Snapshot) { s.Pods = all } }

// delivered adds the objects of a plan to a snapshot, with running pods.
func delivered(plan *Plan) func(*Snapshot) {
	return func(s *Snapshot) {
		objects := slices.Clone(plan.Apply)
		if plan.Anchor != nil {
			objects = append(objects, plan.Anchor)
		}
		for _, o := range objects {
			o := o.DeepCopy()
			if o.GetKind() == "Pod" {
				_ = unstructured.SetNestedField(o.Object, "Running", "status", "phase")
				o.SetUID(types.UID("companion-" + nodeOf(o)))
			}
			s.Own = append(s.Own, o)
		}
		s.State = plan.State
	}
}

// after returns a snapshot whose plan was carried out.
func after(t testing.TB, mode v1alpha1.Mode, more ...func(*Snapshot)) *Snapshot {
	t.Helper()
	s := fixture(t, mode, more...)
	delivered(ComputePlan(s))(s)
	return s
}

// configMapOf is the name of the ConfigMap of a plugin set.
func configMapOf(ids ...int) string { return objects.ConfigMapName("api", set(ids...).Config.Plugins) }

// workloads are the pods and DaemonSets of a plan.
func workloads(plan *Plan) []*unstructured.Unstructured {
	return slices.Concat(ofKind(plan.Apply, "DaemonSet"), ofKind(plan.Apply, "Pod"))
}

// deletes checks what the plan of a snapshot deletes, and the reason that it reports.
func deletes(t *testing.T, s *Snapshot, when, want string, reason delivery.Reason) *Plan {
	t.Helper()
	plan := ComputePlan(s)
	if got := names(plan.Delete); got != want || plan.Status.Reason != reason {
		t.Errorf("%s: deletes %q, %+v, want %q, %s", when, got, plan.Status, want, reason)
	}
	return plan
}

// object returns an object as it is in the API server.
func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": namespace}}}
}

// names returns kind and name of each object, sorted.
func names(objects []*unstructured.Unstructured) string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetKind()+"/"+o.GetName())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func keyIDs(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	file, ok := o.GetAnnotations()[contract.ConfigAnnotation]
	if !ok {
		file, _, _ = unstructured.NestedString(o.Object, "data", "config.yaml")
	}
	c, err := v1alpha1.DecodeReporter([]byte(file))
	if err != nil {
		t.Fatalf("%s: %v\n%s", o.GetName(), err, file)
	}
	var ids []string
	for _, p := range c.Plugins {
		ids = append(ids, p.KeyID)
	}
	return strings.Join(ids, "+")
}

func deployment(generation int64) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "apiserver", Namespace: "ns", UID: "d",
		Generation: generation}}
	d.Spec.Strategy.RollingUpdate = rolling("25%")
	d.Spec.Template.Spec = apiPod("", "").Spec
	d.Spec.Template.Labels = map[string]string{"app": "api"}
	return d
}

func rolling(unavailable string) *appsv1.RollingUpdateDeployment {
	surge := intstr.Parse("25%")
	return &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.Parse(unavailable)), MaxSurge: &surge}
}

// reportOf returns a node's report. by is the reporter's UID; empty: the report names none.
func reportOf(node, by string) operatorstatus.Report {
	return operatorstatus.Report{Node: node, Form: operatorstatus.FormCondition,
		Entries: []contract.Entry{{KeyID: "1", Status: contract.Healthy, Reporter: by}}}
}

func reports(all ...operatorstatus.Report) func(*Snapshot) {
	return func(s *Snapshot) { s.Resource = &operatorstatus.Status{Reports: all} }
}

// executor returns a Controller with what reconcile needs.
func executor(client *dynamicfake.FakeDynamicClient) *Controller {
	return &Controller{applier: ssa.New(client), Options: Options{
		Client: client, Now: time.Now, Event: func(_, _, _, _ string) {},
	}}
}

// newClient returns a fake API server with objects.
func newClient(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	lists := map[schema.GroupVersionResource]string{
		contract.ResourceOf(contract.KubeAPIServers).GVR(): "KubeAPIServerList", informers.Infrastructures: "InfrastructureList",
		informers.Pods: "PodList", informers.Secrets: "SecretList", informers.ConfigMaps: "ConfigMapList",
		informers.ServiceAccounts: "ServiceAccountList", informers.Namespaces: "NamespaceList",
		informers.DaemonSets: "DaemonSetList", informers.Deployments: "DeploymentList", informers.Roles: "RoleList",
		informers.ClusterRoles: "ClusterRoleList", informers.ClusterBindings: "ClusterRoleBindingList",
		informers.Nodes: "NodeList", informers.Events: "EventList",
		informers.Policies:       "ValidatingAdmissionPolicyList",
		informers.PolicyBindings: "ValidatingAdmissionPolicyBindingList",
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
}

// anyServer is the target of tests that carry out a plan of their own.
func anyServer() *Snapshot {
	s := &Snapshot{}
	s.Target = &v1alpha1.APIServer{Name: "api", Namespace: "ns"}
	return s
}

// noRight is the answer if RBAC denies a request.
func noRight(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
}

// failPatch makes an API server answer each patch of a resource with an error.
func failPatch(fake interface {
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
}, resource string, err error) {
	fake.PrependReactor("patch", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// exists reports whether an object is in an API server.
func exists(t *testing.T, client *dynamicfake.FakeDynamicClient, o *unstructured.Unstructured) bool {
	t.Helper()
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	_, err := client.Tracker().Get(resource, o.GetNamespace(), o.GetName())
	return !apierrors.IsNotFound(err)
}
