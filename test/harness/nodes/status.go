package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podStatus is what a kubelet writes next of a pod that it runs, given how the
// pod behaves. It changes nothing that is as it should be, so a status that is equal
// to the pod's need not be written.
func podStatus(pod *corev1.Pod, hostIP, podIP string, behaviour *Behaviour, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.HostIP, status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	status.PodIP, status.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}

	// Init containers one after another, then the others at once.
	blocked := false
	status.InitContainerStatuses = nil
	for _, container := range pod.Spec.InitContainers {
		last := lastOf(pod.Status.InitContainerStatuses, container.Name)
		if blocked {
			status.InitContainerStatuses = append(status.InitContainerStatuses, describe(pod, container, waitsForInit()))
			continue
		}
		policy := restarts(container, true, pod)
		next := nextStatus(container, last, behaviour.of(container, true, policy), policy, now)
		status.InitContainerStatuses = append(status.InitContainerStatuses, describe(pod, container, next))
		done := next.State.Terminated != nil && next.State.Terminated.ExitCode == 0
		sidecar := policy == corev1.RestartPolicyAlways && next.State.Running != nil
		blocked = !done && !sidecar
	}
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		last := lastOf(pod.Status.ContainerStatuses, container.Name)
		policy := restarts(container, false, pod)
		next := waitsForInit()
		if !blocked {
			next = nextStatus(container, last, behaviour.of(container, false, policy), policy, now)
		}
		status.ContainerStatuses = append(status.ContainerStatuses, describe(pod, container, next))
	}
	status.Phase = phaseOf(pod.Spec.RestartPolicy, status.InitContainerStatuses, status.ContainerStatuses, blocked)
	setConditions(&status, blocked, pod.Generation, now)
	return status
}

func lastOf(statuses []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, status := range statuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

func waitsForInit() corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}
}

// describe adds what follows from the rest.
func describe(pod *corev1.Pod, container corev1.Container, status corev1.ContainerStatus) corev1.ContainerStatus {
	status.Name, status.Image = container.Name, container.Image
	status.Started = new(status.State.Running != nil)
	status.ImageID, status.ContainerID = "", ""
	if status.State.Waiting == nil || status.RestartCount > 0 {
		status.ImageID = "stand-in://" + container.Image
		status.ContainerID = "stand-in://" + identity(pod) + "/" + container.Name
	}
	return status
}

// phaseOf is k8s.io/kubernetes/pkg/kubelet getPhase.
func phaseOf(policy corev1.RestartPolicy, inits, containers []corev1.ContainerStatus, blocked bool) corev1.PodPhase {
	if blocked {
		if policy == corev1.RestartPolicyNever && slices.ContainsFunc(inits, failed) {
			return corev1.PodFailed
		}
		return corev1.PodPending
	}
	running, ended := 0, 0
	for _, status := range containers {
		switch {
		case status.State.Running != nil:
			running++
		case status.State.Terminated != nil || status.LastTerminationState.Terminated != nil:
			ended++
		default:
			return corev1.PodPending
		}
	}
	switch {
	case running > 0 || policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case !slices.ContainsFunc(containers, func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil || failed(s) }):
		return corev1.PodSucceeded
	case policy == corev1.RestartPolicyNever:
		return corev1.PodFailed
	}
	return corev1.PodRunning
}

func failed(status corev1.ContainerStatus) bool {
	return status.State.Terminated != nil && status.State.Terminated.ExitCode != 0
}

func setConditions(status *corev1.PodStatus, blocked bool, generation int64, now metav1.Time) {
	notReady := slices.ContainsFunc(status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return !s.Ready || s.State.Running == nil
	})
	ready := corev1.PodCondition{Status: corev1.ConditionTrue}
	switch {
	case status.Phase == corev1.PodSucceeded:
		ready = corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "PodCompleted"}
	case status.Phase == corev1.PodFailed:
		ready = corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "PodFailed"}
	case notReady:
		ready = corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}
	}
	initialized := corev1.PodCondition{Status: corev1.ConditionTrue}
	if blocked {
		initialized = corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "ContainersNotInitialized"}
	}
	for _, c := range []struct {
		of corev1.PodConditionType
		is corev1.PodCondition
	}{
		{corev1.PodReadyToStartContainers, corev1.PodCondition{Status: corev1.ConditionTrue}},
		{corev1.PodInitialized, initialized},
		{corev1.PodReady, ready},
		{corev1.ContainersReady, ready},
		{corev1.PodScheduled, corev1.PodCondition{Status: corev1.ConditionTrue}},
	} {
		c.is.Type, c.is.ObservedGeneration = c.of, generation
		setCondition(status, c.is, now)
	}
}

// setCondition returns whether it changed anything. The time moves with the status
// only.
func setCondition(status *corev1.PodStatus, condition corev1.PodCondition, now metav1.Time) bool {
	for i := range status.Conditions {
		last := &status.Conditions[i]
		if last.Type != condition.Type {
			continue
		}
		condition.LastProbeTime, condition.LastTransitionTime = last.LastProbeTime, last.LastTransitionTime
		if last.Status != condition.Status {
			condition.LastTransitionTime = now
		}
		changed := *last != condition
		*last = condition
		return changed
	}
	condition.LastTransitionTime = now
	status.Conditions = append(status.Conditions, condition)
	return true
}
