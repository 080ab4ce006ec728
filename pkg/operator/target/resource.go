package target

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

var kindOf = map[v1alpha1.Resource]string{
	v1alpha1.ResourceKubeAPIServers:      "KubeAPIServer",
	v1alpha1.ResourceOpenShiftAPIServers: "OpenShiftAPIServer",
	v1alpha1.ResourceAuthentications:     "Authentication",
}

// ResourceOf is an operator resource's place in the API.
func ResourceOf(r v1alpha1.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "operator.openshift.io", Version: "v1", Resource: string(r)}
}

// KindOf is the kind of an operator resource.
func KindOf(r v1alpha1.Resource) string { return kindOf[r] }
