package source

import (
	configv1 "github.com/openshift/api/config/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// What the operator reads.
var (
	Pods             = corev1.SchemeGroupVersion.WithResource("pods")
	Nodes            = corev1.SchemeGroupVersion.WithResource("nodes")
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

// whole keeps all of an object but its history.
func whole(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetManagedFields(nil)
	return o
}

// exists keeps nothing of an object.
func exists(*unstructured.Unstructured) struct{} { return struct{}{} }

// internalServer is the URL of the API servers' internal load balancer.
func internalServer(o *unstructured.Unstructured) string {
	server, _, _ := unstructured.NestedString(o.Object, "status", "apiServerInternalURI")
	return server
}

// typed is an object as T, without its history; nil where it cannot be one.
func typed[T any](o *unstructured.Unstructured) *T { return As[T](whole(o)) }

// As is an object as T; nil where it cannot be one.
func As[T any](o *unstructured.Unstructured) *T {
	t := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, t); err != nil {
		return nil
	}
	return t
}

// Node is what matters of a Node.
type Node struct {
	Name    string
	Created metav1.Time
	Ready   bool
}

func readNode(o *unstructured.Unstructured) Node {
	ready := operatorcr.ReadConditions(o)[string(corev1.NodeReady)]
	return Node{Name: o.GetName(), Created: o.GetCreationTimestamp(), Ready: ready.Status == operatorcr.True}
}
