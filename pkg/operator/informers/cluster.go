package informers

import (
	"context"

	configv1 "github.com/openshift/api/config/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	c.DaemonSets = New(o.Client, selection(DaemonSets, o.Namespace), readDaemonSet, reporters).start(ctx)
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

func readManaged(o *unstructured.Unstructured) Managed {
	return Managed{Unstructured: whole(o), APIServer: o.GetLabels()[contract.APIServerLabel]}
}

// readDaemonSet keeps the managedFields, by which ssa.Applier finds fields of others.
func readDaemonSet(o *unstructured.Unstructured) Managed {
	return Managed{Unstructured: o, APIServer: o.GetLabels()[contract.APIServerLabel]}
}

func readOwnPod(o *unstructured.Unstructured) Managed {
	m := readManaged(o)
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
