package nodes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podStatus returns the status that a kubelet writes for a running pod. Init containers are sidecars, and run too. It
// changes only what differs, so a status that equals the pod's need not be written.
func podStatus(pod *corev1.Pod, hostIP, podIP string, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.HostIP, status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	status.PodIP, status.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}

	of := func(containers []corev1.Container) (all []corev1.ContainerStatus) {
		for _, c := range containers {
			all = append(all, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image, Ready: true, Started: new(true),
				ContainerID: fmt.Sprintf("simulated://%s/%s-0", identity(pod), c.Name),
				State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *status.StartTime}},
			})
		}
		return all
	}
	status.InitContainerStatuses = of(pod.Spec.InitContainers)
	status.ContainerStatuses = of(pod.Spec.Containers)
	status.Phase = corev1.PodRunning
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		setCondition(&status, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
		}, now)
	}
	return status
}

// setCondition sets a condition. Its transition time changes only with its status.
func setCondition(status *corev1.PodStatus, condition corev1.PodCondition, now metav1.Time) {
	condition.LastTransitionTime = now
	for i := range status.Conditions {
		last := &status.Conditions[i]
		if last.Type != condition.Type {
			continue
		}
		if last.Status == condition.Status {
			condition.LastTransitionTime = last.LastTransitionTime
		}
		*last = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}
