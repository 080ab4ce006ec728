// Package podstatus reads what the status of a pod, or of one of its containers, means.
package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Phase is what a container or a pod does, as far as its status shows.
type Phase string

const (
	// NotRunning: it does not run, and nothing shows that it cannot: it starts, or has completed.
	NotRunning Phase = "NotRunning"
	// Running: a pod with all of its containers.
	Running Phase = "Running"
	// Failing: it cannot start, ends soon after each start, or has ended with an error.
	Failing Phase = "Failing"
)

// Status is what the status of a container or a pod means at one time.
type Status struct {
	Phase Phase
	// Why it is Failing, without anything that changes by itself, such as
	// the seconds of a back-off.
	Why string
	// Until is when the phase ends though nothing changes; zero: it does not.
	Until time.Time
}

// calm is how long a container that crashed must run before it counts as started.
// Between two crashes it runs for a moment, which is no recovery.
const calm = 30 * time.Second

// Of reads the status of a pod. A pod whose phase is Failed is never
// started again, whatever its restart policy: it was evicted, refused by the
// kubelet, or ended by the shutdown of its node.
func Of(pod *corev1.Pod, now time.Time) Status {
	var failing Status
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range statuses {
		if s := OfContainer(pod, &statuses[i], now); s.Phase == Failing && failing.Phase == "" {
			failing = s
		}
	}
	notRunning := func(s corev1.ContainerStatus) bool { return s.State.Running == nil }
	switch phase := pod.Status.Phase; {
	case phase == corev1.PodFailed:
		return Status{Phase: Failing, Why: cmp.Or(joined(pod.Status.Reason, pod.Status.Message), failing.Why)}
	case phase != corev1.PodSucceeded && failing.Phase == Failing:
		return failing
	case phase == corev1.PodRunning && !slices.ContainsFunc(pod.Status.ContainerStatuses, notRunning):
		return Status{Phase: Running}
	}
	return Status{Phase: NotRunning}
}

// OfContainer reads the status of one container of a pod, init containers
// included.
func OfContainer(pod *corev1.Pod, s *corev1.ContainerStatus, now time.Time) Status {
	policy := restartPolicyOf(pod, s.Name)
	crashed := s.LastTerminationState.Terminated
	switch {
	case s.State.Waiting != nil:
		return waiting(s.State.Waiting, crashed)
	case s.State.Terminated != nil:
		return terminated(s.State.Terminated, s.RestartCount, policy)
	case s.State.Running == nil:
		return Status{Phase: NotRunning}
	}
	if crashed != nil && s.RestartCount > 1 && brief(crashed) &&
		(crashed.ExitCode != 0 || policy == corev1.RestartPolicyAlways) {
		if until := s.State.Running.StartedAt.Add(calm); now.Before(until) {
			return Status{Phase: Failing, Why: "CrashLoopBackOff" + exit(crashed), Until: until}
		}
	}
	return Status{Phase: Running}
}

func waiting(w *corev1.ContainerStateWaiting, crashed *corev1.ContainerStateTerminated) Status {
	switch w.Reason {
	case "", "ContainerCreating", "PodInitializing":
		return Status{Phase: NotRunning}
	case "ErrImagePull", "ImagePullBackOff": // by turns; the second quotes the first
		why := w.Message
		if _, cause, quoted := strings.Cut(why, "ErrImagePull: "); quoted {
			why = cause
		}
		return Status{Phase: Failing, Why: joined("ImagePullBackOff", why)}
	case "CrashLoopBackOff": // the kubelet's message counts seconds
		return Status{Phase: Failing, Why: w.Reason + exit(crashed)}
	}
	return Status{Phase: Failing, Why: joined(w.Reason, w.Message)}
}

func terminated(t *corev1.ContainerStateTerminated, restarts int32, policy corev1.RestartPolicy) Status {
	switch {
	case t.ExitCode == 0 && policy != corev1.RestartPolicyAlways:
		return Status{Phase: NotRunning}
	case policy == corev1.RestartPolicyNever:
		return Status{Phase: Failing, Why: t.Reason + exit(t)}
	case t.ExitCode != 0 && restarts == 0, t.ExitCode == 0 && restarts <= 1, !brief(t):
		// It is started again at once. An exit without an error may be intended once.
		return Status{Phase: NotRunning}
	}
	return Status{Phase: Failing, Why: "CrashLoopBackOff" + exit(t)}
}

// restartPolicyOf is the restart policy of one container: its own, else the pod's.
// An init container without one runs once (k8s.io/kubernetes,
// pkg/kubelet/container/helpers.go).
func restartPolicyOf(pod *corev1.Pod, container string) corev1.RestartPolicy {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return corev1.RestartPolicyNever
	}
	pods := cmp.Or(pod.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container && c.RestartPolicy != nil {
			return corev1.RestartPolicy(*c.RestartPolicy)
		}
	}
	isInit := func(s corev1.ContainerStatus) bool { return s.Name == container }
	if pods == corev1.RestartPolicyAlways && slices.ContainsFunc(pod.Status.InitContainerStatuses, isInit) {
		return corev1.RestartPolicyOnFailure
	}
	return pods
}

// brief reports whether a container ended soon after its start. One that ran for long,
// and ended with its node, did not crash; nor is it known of one whose start is not, or whose
// end was not seen: after a power cut the container runtime (reason Unknown) or the kubelet
// (ContainerStatusUnknown) finds that it does not run.
func brief(t *corev1.ContainerStateTerminated) bool {
	if t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown" {
		return false
	}
	return !t.StartedAt.IsZero() && t.FinishedAt.Sub(t.StartedAt.Time) < calm
}

// logTail is the length from which on a message is the end of a log, cut off at
// its start: the kubelet takes 2048 bytes (k8s.io/kubernetes, pkg/kubelet/kuberuntime).
const logTail = 2000

// exit describes how a container ended: exit code and one line.
func exit(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	text := fmt.Sprintf(", exit code %d", t.ExitCode)
	if t.ExitCode == 128+9 {
		text += " (killed)"
	}
	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	line := lines[0]
	if len(t.Message) >= logTail { // the first line may be half of one
		line = lines[len(lines)-1]
	}
	return joined(text, line)
}

func joined(reason, message string) string {
	return strings.TrimSuffix(strings.TrimPrefix(reason+": "+message, ": "), ": ")
}
