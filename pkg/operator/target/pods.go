package target

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReadPod makes a typed pod, without its history; nil where it is none.
func ReadPod(o *unstructured.Unstructured) *corev1.Pod {
	o.SetManagedFields(nil)
	return TypedPod(o)
}

// TypedPod makes a typed pod of one that others may be reading; nil where it is none.
func TypedPod(o *unstructured.Unstructured) *corev1.Pod {
	pod, err := podOf(o)
	if err != nil {
		return nil
	}
	return pod
}

func podOf(o *unstructured.Unstructured) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	return pod, nil
}
