package informers

import (
	"cmp"
	"context"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// ClusterName is the name of the one object of each of OpenShift's configuration
// resources.
const ClusterName = "cluster"

// Managed is an object that the operator created for one API server. The other fields cache what every sync reads.
type Managed struct {
	*unstructured.Unstructured
	APIServer string      // by its label
	Pod       *corev1.Pod // the object as a Pod; set in OwnPods only
}

type managedInformer = *Informer[Managed]

// Cluster has the informers of the whole cluster.
type Cluster struct {
	Roles, Bindings managedInformer // the ClusterRoles and ClusterRoleBindings of API servers
	// Policy and PolicyBinding bound what reporters may write. Their value is why they differ from what is expected;
	// empty: they do not.
	Policy, PolicyBinding *Informer[string]
	// Objects for API servers in the operator's own namespace.
	OwnPods, DaemonSets, ConfigMaps, ServiceAccount managedInformer
	// Infrastructure has the URL of the API servers' internal load balancer. Nil: this is not OpenShift.
	Infrastructure *Informer[string]
	Nodes          *Informer[Node] // all: pods of API servers may be on any
	// Failures is why pods in the operator's own namespace do not start. Without the right to read Events, messages do
	// not say that.
	Failures *Informer[Failure]

	ClusterOptions
}

// ClusterOptions configure what a Cluster watches, and which queues get the changes.
type ClusterOptions struct {
	Client    dynamic.Interface
	Resources dynamic.Interface // for operator resources: it decodes what operatorstatus.Read needs
	Namespace string            // the operator's own
	// CheckPolicy returns why the reporters' policy, or its binding, is not as expected. It is called once per version.
	CheckPolicy func(*unstructured.Unstructured) string
	OpenShift   bool
	// Reporters and Health are the queues of the controllers of reporters and of the roll-up.
	Reporters, Health Queue
}

// NewCluster starts the informers of a cluster. They run until ctx ends.
func NewCluster(ctx context.Context, o ClusterOptions) *Cluster {
	c := &Cluster{ClusterOptions: o}
	reporters, health := Key{o.Reporters, syncqueue.All}, Key{o.Health, syncqueue.All}
	selection := func(resource schema.GroupVersionResource, namespace string) Selection {
		return Selection{Resource: resource, Namespace: namespace, Labels: contract.Managed}
	}
	managed := func(resource schema.GroupVersionResource, namespace string) managedInformer {
		return New(o.Client, selection(resource, namespace), readManaged, reporters).start(ctx)
	}
	policy := func(resource schema.GroupVersionResource) *Informer[string] {
		return New(o.Client, Selection{Resource: resource, Name: objects.PolicyName}, o.CheckPolicy,
			reporters).start(ctx)
	}
	c.Roles, c.Bindings = managed(ClusterRoles, ""), managed(ClusterBindings, "")
	c.Policy, c.PolicyBinding = policy(Policies), policy(PolicyBindings)
	c.DaemonSets = managed(DaemonSets, o.Namespace)
	c.ConfigMaps = managed(ConfigMaps, o.Namespace)
	c.ServiceAccount = managed(ServiceAccounts, o.Namespace)
	c.OwnPods = New(o.Client, selection(Pods, o.Namespace), readOwnPod, health, reporters).start(ctx)
	if o.OpenShift {
		c.Infrastructure = New(o.Client, Selection{Resource: Infrastructures, Name: ClusterName},
			internalServer, reporters).start(ctx)
	}
	c.Nodes = New(o.Client, Selection{Resource: Nodes}, readNode, health, reporters).inPages(trimNode).start(ctx)
	warnings := Selection{Resource: Events, Namespace: o.Namespace, Fields: "type=" + corev1.EventTypeWarning}
	c.Failures = New(o.Client, warnings, readFailure, reporters).start(ctx)
	return c
}

// What the operator reads.
var (
	Pods             = corev1.SchemeGroupVersion.WithResource("pods")
	Nodes            = corev1.SchemeGroupVersion.WithResource("nodes")
	Events           = corev1.SchemeGroupVersion.WithResource("events")
	Secrets          = corev1.SchemeGroupVersion.WithResource("secrets")
	ConfigMaps       = corev1.SchemeGroupVersion.WithResource("configmaps")
	ServiceAccounts  = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	Namespaces       = corev1.SchemeGroupVersion.WithResource("namespaces")
	DaemonSets       = appsv1.SchemeGroupVersion.WithResource("daemonsets")
	Deployments      = appsv1.SchemeGroupVersion.WithResource("deployments")
	Roles            = rbacv1.SchemeGroupVersion.WithResource("roles")
	ClusterRoles     = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	ClusterBindings  = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	Policies         = admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	PolicyBindings   = admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings")
	APIServers       = configv1.GroupVersion.WithResource("apiservers")
	ClusterOperators = configv1.GroupVersion.WithResource("clusteroperators")
	Infrastructures  = configv1.GroupVersion.WithResource("infrastructures")
)

// whole keeps an object without its managedFields.
func whole(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetManagedFields(nil)
	return o
}

// readManaged keeps the managedFields, by which ssa.Applier finds fields of others.
func readManaged(o *unstructured.Unstructured) Managed {
	return Managed{Unstructured: o, APIServer: o.GetLabels()[contract.APIServerLabel]}
}

func readOwnPod(o *unstructured.Unstructured) Managed {
	m := readManaged(whole(o)) // of a pod, only the metadata is written
	m.Pod = As[corev1.Pod](o)
	return m
}

// exists keeps nothing of an object.
func exists(*unstructured.Unstructured) struct{} { return struct{}{} }

// internalServer returns the URL of the API servers' internal load balancer.
func internalServer(o *unstructured.Unstructured) string {
	server, _, _ := unstructured.NestedString(o.Object, "status", "apiServerInternalURI")
	return server
}

// typed converts an object to T, without its managedFields.
func typed[T any](o *unstructured.Unstructured) *T { return As[T](whole(o)) }

// As converts an object to T, never nil. It ignores the error: the API server validated the object.
func As[T any](o *unstructured.Unstructured) *T {
	t := new(T)
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, t)
	return t
}

// Node has what is needed of a Node.
type Node struct {
	Name   string
	Labels map[string]string
	Ready  bool
}

// trimNode keeps what readNode needs. Images are most of a Node.
func trimNode(o *unstructured.Unstructured) {
	conditions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	o.Object["status"] = map[string]any{"conditions": conditions}
	whole(o).SetAnnotations(nil)
}

func readNode(o *unstructured.Unstructured) Node {
	ready := operatorstatus.ReadConditions(o)[string(corev1.NodeReady)]
	return Node{Name: o.GetName(), Labels: o.GetLabels(), Ready: ready.Status == operatorstatus.True}
}

// Failure is why a pod, or a pod of a DaemonSet, does not start, from an Event of Kubernetes.
type Failure struct {
	Event   string // its name
	Of      types.UID
	Message string
}

// LastFailures returns the last message for each object. The names of an object's Events end in their creation time,
// so they sort by it.
func (c *Cluster) LastFailures() map[types.UID]string {
	all := c.Failures.List()
	slices.SortFunc(all, func(a, b Failure) int { return cmp.Compare(a.Event, b.Event) })
	last := map[types.UID]string{}
	for _, failure := range all {
		if failure.Message != "" {
			last[failure.Of] = failure.Message
		}
	}
	return last
}

// readFailure returns a zero Failure for an Event with another reason.
func readFailure(o *unstructured.Unstructured) Failure {
	e := As[corev1.Event](o)
	if e.Reason != "FailedMount" && e.Reason != "FailedCreate" {
		return Failure{}
	}
	return Failure{e.Name, e.InvolvedObject.UID, e.Message}
}
