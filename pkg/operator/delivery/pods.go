package delivery

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// typedPod makes a typed pod; nil where it cannot be one.
func typedPod(o *unstructured.Unstructured) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err != nil {
		return nil
	}
	return pod
}
