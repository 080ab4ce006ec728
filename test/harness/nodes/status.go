package nodes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podStatus returns the status that a kubelet writes for a running pod. Init containers are sidecars, and run too. It
// changes only what differs, so a status that equals the pod's need not be written.
func podStatus(pod *corev1.Pod, hostIP, podIP string, behaviour Behaviour, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.HostIP, status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	status.PodIP, status.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}

	of := func(containers []corev1.Container, last []corev1.ContainerStatus) (all []corev1.ContainerStatus) {
		for _, c := range containers {
			i := slices.IndexFunc(last, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
			var was corev1.ContainerStatus
			if i >= 0 {
				was = last[i]
			}
			all = append(all, containerStatus(pod, c, was, behaviour, now))
		}
		return all
	}
	status.InitContainerStatuses = of(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	status.ContainerStatuses = of(pod.Spec.Containers, pod.Status.ContainerStatuses)

	status.Phase = corev1.PodRunning
	if slices.ContainsFunc(status.ContainerStatuses, neverStarted) {
		status.Phase = corev1.PodPending
	}
	ready, reason := corev1.ConditionTrue, ""
	if slices.ContainsFunc(status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready }) {
		ready, reason = corev1.ConditionFalse, "ContainersNotReady"
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation}
		if kind == corev1.ContainersReady || kind == corev1.PodReady {
			c.Status, c.Reason = ready, reason
		}
		setCondition(&status, c, now)
	}
	return status
}

func neverStarted(s corev1.ContainerStatus) bool {
	return s.State.Running == nil && s.State.Terminated == nil && s.LastTerminationState.Terminated == nil
}

func containerStatus(
	pod *corev1.Pod, c corev1.Container, last corev1.ContainerStatus, behaviour Behaviour, now metav1.Time,
) corev1.ContainerStatus {
	next := corev1.ContainerStatus{RestartCount: last.RestartCount, LastTerminationState: last.LastTerminationState}
	var other *corev1.ContainerStatus
	if behaviour != nil {
		other = behaviour(pod, c.Name)
	}
	switch {
	case other != nil:
		next = corev1.ContainerStatus{
			RestartCount: other.RestartCount, State: other.State, LastTerminationState: other.LastTerminationState,
		}
	case last.State.Running != nil:
		next.State.Running = last.State.Running
	default:
		next.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
	}
	next.Name, next.Image = c.Name, c.Image
	next.Ready = next.State.Running != nil
	next.Started = new(next.Ready)
	if !neverStarted(next) {
		next.ImageID = "simulated://" + c.Image
		next.ContainerID = containerID(pod, c.Name, next.RestartCount)
	}
	if ended := next.LastTerminationState.Terminated; ended != nil && ended.ContainerID == "" {
		next.LastTerminationState = *next.LastTerminationState.DeepCopy()
		next.LastTerminationState.Terminated.ContainerID = containerID(pod, c.Name, max(0, next.RestartCount-1))
	}
	return next
}

func containerID(pod *corev1.Pod, container string, restarts int32) string {
	return fmt.Sprintf("simulated://%s/%s-%d", identity(pod), container, restarts)
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
