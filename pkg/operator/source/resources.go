package source

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the operator reads.
var (
	Pods            = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	Nodes           = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	Secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ConfigMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	ServiceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	Namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	DaemonSets      = appsv1.SchemeGroupVersion.WithResource("daemonsets")
	Deployments     = appsv1.SchemeGroupVersion.WithResource("deployments")
	Roles           = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	ClusterRoles    = schema.GroupVersionResource{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles",
	}
	ClusterBindings = schema.GroupVersionResource{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings",
	}
	Policies = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
	}
	PolicyBindings = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings",
	}
	APIServers       = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "apiservers"}
	ClusterOperators = schema.GroupVersionResource{
		Group: "config.openshift.io", Version: "v1", Resource: "clusteroperators",
	}
	Infrastructures = schema.GroupVersionResource{
		Group: "config.openshift.io", Version: "v1", Resource: "infrastructures",
	}
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
	n := Node{Name: o.GetName(), Created: o.GetCreationTimestamp()}
	conditions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		fields, _ := c.(map[string]any)
		if fields["type"] == string(corev1.NodeReady) {
			n.Ready = fields["status"] == string(corev1.ConditionTrue)
		}
	}
	return n
}
