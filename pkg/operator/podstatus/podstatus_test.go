package podstatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func runs(since time.Duration) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: "kms", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(since)}},
	}
}

func waits(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:  "kms",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}
}

// ended ended a second ago; it had run for that long.
func ended(code int32, ran time.Duration) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "kms", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Error", ExitCode: code, StartedAt: ago(time.Second + ran), FinishedAt: ago(time.Second)}}}
}

// restarted was restarted some times, the last time because of an exit code.
func restarted(
	s corev1.ContainerStatus, restarts, code int32, message string, ran time.Duration,
) corev1.ContainerStatus {
	s.RestartCount = restarts
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: code, Message: message, StartedAt: ago(time.Minute + ran), FinishedAt: ago(time.Minute),
	}
	return s
}

func crashed(s corev1.ContainerStatus, restarts, code int32, message string) corev1.ContainerStatus {
	return restarted(s, restarts, code, message, time.Second)
}

// unseen is the status of a container that was restarted twice, and that the container
// runtime found ended when it started itself.
func unseen(s corev1.ContainerStatus, reason string) corev1.ContainerStatus {
	if s.State.Terminated == nil {
		s = crashed(s, 2, 255, "")
		s.LastTerminationState.Terminated.Reason = reason
		return s
	}
	s.RestartCount = 2
	s.State.Terminated.Reason = reason
	return s
}

const idle, running, loop = "NotRunning", "Running", "CrashLoopBackOff, exit code "

// text is a status: its phase, or why it is Failing, and for how long.
func text(s Status) string {
	switch {
	case s.Phase != Failing:
		return string(s.Phase) + s.Why
	case s.Until.IsZero():
		return s.Why
	}
	return fmt.Sprintf("%s, for %s", s.Why, s.Until.Sub(now))
}

var always, never = corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever

func podNever(p *corev1.Pod)  { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
func podFailed(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
func asInit(p *corev1.Pod) {
	p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
	p.Status.InitContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses, nil
}
func asSidecar(p *corev1.Pod) { asInit(p); p.Spec.InitContainers[0].RestartPolicy = &always }
func ownNever(p *corev1.Pod)  { p.Spec.Containers[0].RestartPolicy = &never }

var long = strings.Repeat("x", logTail) + "\nno token\n"

var containerCases = []struct {
	name   string
	pod    func(*corev1.Pod)
	status corev1.ContainerStatus
	want   string
}{
	{"nothing is known", nil, corev1.ContainerStatus{Name: "kms"}, idle},
	{"it runs", nil, runs(time.Second), running},

	{"waiting for no reason", nil, waits("", ""), idle},
	{"being created", nil, waits("ContainerCreating", ""), idle},
	{"waiting for init containers", nil, waits("PodInitializing", ""), idle},
	{
		"no image", nil, waits("ImagePullBackOff", `Back-off pulling image "x"`),
		`ImagePullBackOff: Back-off pulling image "x"`,
	},
	{"no image, no message", nil, waits("ErrImagePull", ""), "ImagePullBackOff"},
	{
		"no image, in back-off: the cause alone", nil,
		waits("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: not found`),
		"ImagePullBackOff: not found",
	},
	{"no image, at a try: the same text", nil, waits("ErrImagePull", "not found"), "ImagePullBackOff: not found"},
	{
		"a Secret is missing", nil, waits("CreateContainerConfigError", `secret "x" not found`),
		`CreateContainerConfigError: secret "x" not found`,
	},
	{
		"waiting after a crash: without the kubelet's seconds", nil,
		crashed(waits("CrashLoopBackOff", "back-off 10s restarting"), 2, 137, ""),
		loop + "137 (killed)",
	},
	{
		"waiting after a crash of which nothing is known", nil,
		waits("CrashLoopBackOff", "back-off 10s restarting"), "CrashLoopBackOff",
	},
	{
		"the first line of its message", nil,
		crashed(waits("CrashLoopBackOff", ""), 2, 1, "\nno token\nstack"),
		loop + "1: no token",
	},
	{
		"the last line of the end of its log", nil, crashed(waits("CrashLoopBackOff", ""), 2, 1, long),
		loop + "1: no token",
	},
	{"it ended again and again without an error", nil, crashed(waits("CrashLoopBackOff", ""), 2, 0, ""), loop + "0"},

	{"it crashed once, and is started again at once", nil, ended(1, time.Second), idle},
	{"it crashed again", nil, crashed(ended(2, time.Second), 1, 1, "the one before"), loop + "2"},
	{"its end was not seen, after a power cut", nil, unseen(ended(255, time.Second), "Unknown"), idle},
	{"its end was not seen, by the kubelet", nil, unseen(ended(137, time.Second), "ContainerStatusUnknown"), idle},
	{"it runs after an end that was not seen", nil, unseen(runs(time.Second), "Unknown"), running},
	{"it ran for long, and ended with its node", nil, crashed(ended(255, time.Hour), 9, 1, ""), idle},
	{"its start is not known, as after the loss of its node", nil, func() corev1.ContainerStatus {
		s := crashed(ended(137, 0), 9, 1, "")
		s.State.Terminated.StartedAt = metav1.Time{}
		return s
	}(), idle},
	{"it ended without an error", nil, crashed(ended(0, time.Second), 1, 0, ""), idle},
	{"it ended without an error, again", nil, crashed(ended(0, time.Second), 2, 0, ""), loop + "0"},

	{"it runs after its first crash", nil, crashed(runs(time.Second), 1, 1, ""), running},
	{"it runs after a second crash", nil, crashed(runs(time.Second), 2, 1, "refused"), loop + "1: refused, for 29s"},
	{"it runs for a moment after many", nil, crashed(runs(0), 9, 1, ""), loop + "1, for 30s"},
	{"it runs for a nanosecond too little", nil, crashed(runs(calm-1), 2, 1, ""), loop + "1, for 1ns"},
	{"it runs for long enough", nil, crashed(runs(calm), 2, 1, ""), running},
	{
		"it ran for long, ended without an error, and runs", nil,
		restarted(runs(time.Second), 9, 0, "", time.Hour), running,
	},
	{"it ran for long, ended with its node, and runs", nil, restarted(runs(time.Second), 9, 255, "", time.Hour), running},
	{"it ends at once without an error, and runs", nil, crashed(runs(time.Second), 9, 0, ""), loop + "0, for 29s"},
	{
		"it runs, and nothing is known of its end", nil,
		func() corev1.ContainerStatus { s := runs(time.Second); s.RestartCount = 9; return s }(), running,
	},

	{"an init container completed", asInit, ended(0, time.Second), idle},
	{
		"an init container completed, once after each of two reboots", asInit,
		crashed(ended(0, time.Second), 2, 0, ""), idle,
	},
	{"an init container runs again after a reboot", asInit, crashed(runs(time.Second), 2, 0, ""), running},
	{"an init container crashes", asInit, crashed(ended(1, time.Second), 2, 1, ""), loop + "1"},
	{"an init container runs between crashes", asInit, crashed(runs(time.Second), 2, 1, ""), loop + "1, for 29s"},
	{
		"an init container that is restarted always ends again and again", asSidecar,
		crashed(ended(0, time.Second), 2, 0, ""), loop + "0",
	},

	{"it completed in a pod that is not restarted", podNever, ended(0, time.Second), idle},
	{"it failed in a pod that is not restarted", podNever, ended(3, time.Second), "Error, exit code 3"},
	{"it failed, and is not restarted itself", ownNever, ended(3, time.Second), "Error, exit code 3"},
	{"its pod has failed", podFailed, ended(137, time.Hour), "Error, exit code 137 (killed)"},
}

func TestContainerStatus(t *testing.T) {
	for _, tt := range containerCases {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Spec.Containers = []corev1.Container{{Name: "kms"}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{tt.status}
			if tt.pod != nil {
				tt.pod(pod)
			}
			if got := text(OfContainer(pod, &tt.status, now)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestPodStatus(t *testing.T) {
	for _, tt := range []struct {
		name     string
		status   corev1.PodStatus
		statuses []corev1.ContainerStatus
		want     string
	}{
		{"nothing is known", corev1.PodStatus{}, nil, idle},
		{
			"its containers run", corev1.PodStatus{Phase: corev1.PodRunning},
			[]corev1.ContainerStatus{runs(time.Hour)}, running,
		},
		{
			"one of its containers does not run yet", corev1.PodStatus{Phase: corev1.PodRunning},
			[]corev1.ContainerStatus{runs(time.Hour), waits("ContainerCreating", "")},
			idle,
		},
		{
			"one of its containers cannot start", corev1.PodStatus{Phase: corev1.PodPending},
			[]corev1.ContainerStatus{runs(time.Hour), waits("ErrImagePull", "not found")},
			"ImagePullBackOff: not found",
		},
		{
			"it runs between crashes", corev1.PodStatus{Phase: corev1.PodRunning},
			[]corev1.ContainerStatus{crashed(runs(time.Second), 2, 1, "")},
			loop + "1, for 29s",
		},
		{"completed", corev1.PodStatus{Phase: corev1.PodSucceeded}, []corev1.ContainerStatus{ended(0, time.Second)}, idle},
		{
			"refused by the kubelet",
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "not enough"}, nil,
			"OutOfcpu: not enough",
		},
		{"ended by the shutdown of its node",
			corev1.PodStatus{
				Phase: corev1.PodFailed, Reason: "Terminated",
				Message: "Pod was terminated in response to imminent node shutdown.",
			}, []corev1.ContainerStatus{ended(137, time.Hour)},
			"Terminated: Pod was terminated in response to imminent node shutdown."},
		{
			"ended with an error", corev1.PodStatus{Phase: corev1.PodFailed},
			[]corev1.ContainerStatus{ended(2, time.Second)}, "Error, exit code 2",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Status: tt.status}
			pod.Status.ContainerStatuses = tt.statuses
			if got := text(Of(pod, now)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
