// Package source reads operator resources: from a cluster, with the rights of
// whoever asks, or from files that were taken of one. It judges nothing.
package source

import "k8s.io/apimachinery/pkg/runtime/schema"

// Targets are the resources that reports are on, in the order in which they are
// shown.
var Targets = []string{"kubeapiservers", "openshiftapiservers", "authentications"}

// kinds are those of Targets.
var kinds = map[string]string{
	"KubeAPIServer":      "kubeapiservers",
	"OpenShiftAPIServer": "openshiftapiservers",
	"Authentication":     "authentications",
}

const (
	group      = "operator.openshift.io"
	objectName = "cluster"
)

func resource(target string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: target}
}
