package nodes

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Does is what a container does.
type Does int

const (
	// Runs starts, and goes on.
	Runs Does = iota
	// CannotPull has an image that cannot be pulled: waiting as ErrImagePull,
	// then as ImagePullBackOff, which stays.
	CannotPull
	// CrashLoops ends with Behaviour.ExitCode (1 where that is 0): terminated,
	// then waiting as CrashLoopBackOff with one restart, which stays.
	CrashLoops
	// Ends ends with Behaviour.ExitCode, and with restartPolicy Never, or OnFailure
	// and code 0, that is the end. Otherwise it crash loops, whatever the code.
	Ends
)

// Behaviour is what one container of a pod does. The pod's others run.
type Behaviour struct {
	// Container is its name, which may be an init container's. Empty: all but the
	// init containers.
	Container string
	Does      Does
	// ExitCode is that of CrashLoops and Ends.
	ExitCode int32
	// Message explains, where the API has a place for it.
	Message string
}

// of returns what a container does. By default it runs, or if
// it is expected to end, it succeeds.
func (b *Behaviour) of(container corev1.Container, init bool, policy corev1.RestartPolicy) Behaviour {
	if b != nil && (b.Container == container.Name || b.Container == "" && !init) {
		return *b
	}
	if policy != corev1.RestartPolicyAlways {
		return Behaviour{Does: Ends}
	}
	return Behaviour{}
}

// restarts returns which policy a container is under.
func restarts(container corev1.Container, init bool, pod *corev1.Pod) corev1.RestartPolicy {
	switch {
	case container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways:
		return corev1.RestartPolicyAlways // a sidecar
	case init && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return corev1.RestartPolicyOnFailure
	}
	return pod.Spec.RestartPolicy
}

// nextStatus returns the next status of a container that does this, from its last one
// (the zero value for none). Steps that follow each other are seen one by one.
func nextStatus(container corev1.Container, last corev1.ContainerStatus, b Behaviour, policy corev1.RestartPolicy, now metav1.Time) corev1.ContainerStatus {
	next := corev1.ContainerStatus{RestartCount: last.RestartCount, LastTerminationState: last.LastTerminationState}
	ended := last.State.Terminated
	switch b.Does {
	case CannotPull:
		reason := "ErrImagePull"
		if w := last.State.Waiting; w != nil && (w.Reason == reason || w.Reason == "ImagePullBackOff") {
			reason = "ImagePullBackOff"
		}
		next.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: b.Message}
	case CrashLoops, Ends:
		code := b.ExitCode
		if b.Does == CrashLoops && code == 0 {
			code = 1
		}
		w := last.State.Waiting
		switch {
		case ended != nil && (b.Does == Ends && isFinal(ended.ExitCode, policy)):
			return last
		case ended != nil:
			next.RestartCount++
			next.LastTerminationState.Terminated = ended
			next.State.Waiting = crashLoopBackOff(container.Name)
		case w != nil && w.Reason == reasonCrashLoop:
			return last
		default:
			next.State.Terminated = terminated(code, b.Message, startOf(last, now), now)
			next.Ready = b.Does == Ends && code == 0
		}
	default:
		next.State.Running = last.State.Running
		if next.State.Running == nil {
			next.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		}
		if ended != nil {
			next.RestartCount++
			next.LastTerminationState.Terminated = ended
		}
		next.Ready = true
	}
	return next
}

const reasonCrashLoop = "CrashLoopBackOff"

func crashLoopBackOff(container string) *corev1.ContainerStateWaiting {
	return &corev1.ContainerStateWaiting{Reason: reasonCrashLoop, Message: "back-off restarting failed container " + container}
}

func terminated(code int32, message string, from, to metav1.Time) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, StartedAt: from, FinishedAt: to}
}

func startOf(last corev1.ContainerStatus, now metav1.Time) metav1.Time {
	if last.State.Running != nil {
		return last.State.Running.StartedAt
	}
	return now
}

func isFinal(code int32, policy corev1.RestartPolicy) bool {
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0
}
