package pluginhealthcontroller

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// beside is an API server's pod with its plugin and reporter containers.
type beside struct {
	tool     string
	pod      *corev1.Pod
	plugins  []v1alpha1.Plugin
	served   string      // the API server's container; empty: there is none
	names    []string    // of the plugins' containers
	reporter *corev1.Pod // a pod of its own; nil: none
}

// newBeside finds the containers of plugins: those that share the folder of their sockets with the API server.
func newBeside(t *delivery.Snapshot, pod *corev1.Pod, plugins []v1alpha1.Plugin, reporter *corev1.Pod) *beside {
	b := &beside{tool: t.Tool, pod: pod, plugins: plugins, reporter: reporter}
	served, err := objects.APIServerContainer(&pod.Spec, t.Container)
	if err != nil {
		return b
	}
	b.served = served.Name
	mounts, _ := objects.SocketMounts(&pod.Spec, t.Container, plugins...)
	for _, c := range containers(pod) {
		shares := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.ContainsFunc(mounts, func(s corev1.VolumeMount) bool { return s.Name == m.Name })
		})
		if shares && c.Name != b.served && !contract.IsReporter(c.Name) {
			b.names = append(b.names, c.Name)
		}
	}
	return b
}

// containers are a pod's, the init containers first.
func containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// quiet is until when missing reports of a pod's node are excused, since its API server or
// one of its plugins started or ended. A restart of another container of the pod excuses nothing.
func (b *beside) quiet() (until time.Time) {
	last := began(b.pod)
	for _, s := range statuses(b.pod) {
		if s.Name != b.served && !slices.Contains(b.names, s.Name) {
			continue
		}
		for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
			if r := state.Running; r != nil {
				last = latest(last, r.StartedAt.Time)
			}
			if e := state.Terminated; e != nil {
				last = latest(last, e.FinishedAt.Time)
			}
		}
	}
	return last.Add(rollup.QuietPeriod)
}

// look has the commands that show the logs, by keyID, and the reporter's under "". The container of a plugin is
// the only one, or the one with the socket in its arguments.
func (b *beside) look() map[string]string {
	all := map[string]string{}
	for _, c := range containers(b.pod) {
		logs := fmt.Sprintf("%s logs -n %s %s -c %s", b.tool, b.pod.Namespace, b.pod.Name, c.Name)
		if contract.IsReporter(c.Name) {
			all[""] = logs
		}
		arguments := fmt.Sprint(c.Command, c.Args, c.Env)
		for _, p := range b.plugins {
			serves := len(b.names) == 1 || strings.Contains(arguments, path.Base(p.Endpoint))
			if serves && slices.Contains(b.names, c.Name) {
				all[p.KeyID] = logs
			}
		}
	}
	if b.reporter != nil {
		all[""] = fmt.Sprintf("%s logs -n %s %s", b.tool, b.reporter.Namespace, b.reporter.Name)
	}
	return all
}

// faults are the plugins' and the reporter's containers that cannot start. again is called with when that may
// change by itself.
func (b *beside) faults(now time.Time, again func(time.Time)) (all []rollup.Finding) {
	add := func(pod *corev1.Pod, container, reason, why string) {
		if why == "" {
			return
		}
		look := fmt.Sprintf("%s describe -n %s pod %s", b.tool, pod.Namespace, pod.Name)
		if strings.HasPrefix(why, crashLoop) {
			look = fmt.Sprintf("%s logs -n %s %s -c %s --previous", b.tool, pod.Namespace, pod.Name, container)
		}
		all = append(all, rollup.Finding{Reason: reason, Node: b.pod.Spec.NodeName, Detail: why, Look: look,
			Text: "container " + container + " cannot start"})
	}
	of := func(pod *corev1.Pod) {
		for _, s := range statuses(pod) {
			why, until := cannotStart(&s, now)
			again(until)
			if pod == b.reporter || contract.IsReporter(s.Name) {
				add(pod, s.Name, contract.ReporterNotRunning, why)
			} else if slices.Contains(b.names, s.Name) {
				add(pod, s.Name, contract.PluginNotRunning, why)
			}
		}
	}
	of(b.pod)
	if b.reporter == nil {
		return all
	}
	of(b.reporter)
	if p := b.reporter.Status; p.Phase == corev1.PodFailed { // a kubelet ended or refused it
		add(b.reporter, contract.ReporterContainer, contract.ReporterNotRunning,
			cmp.Or(joined(p.Reason, p.Message), "its pod has failed"))
	}
	return all
}

// statuses are those of a pod's containers, the init containers first.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

const (
	// calm is how long a container that crashed must run before it counts as started: between two
	// crashes it runs for a moment, which is no recovery. One that ran for longer did not crash.
	calm      = 30 * time.Second
	crashLoop = "CrashLoopBackOff"
)

// cannotStart is why a container cannot start, or ends soon after each start, without anything that changes
// by itself, such as the seconds of a back-off; empty: nothing shows that. until is when it ends
// though nothing changes; zero: it does not.
func cannotStart(s *corev1.ContainerStatus, now time.Time) (why string, until time.Time) {
	last, crashes := s.LastTerminationState.Terminated, s.RestartCount
	if s.State.Terminated != nil {
		last, crashes = s.State.Terminated, crashes+1
	}
	if w := s.State.Waiting; w != nil {
		switch w.Reason {
		case "", "ContainerCreating", "PodInitializing":
			return "", until
		case "ErrImagePull", "ImagePullBackOff": // in turns; the second quotes the first
			message := w.Message
			if _, cause, quoted := strings.Cut(message, "ErrImagePull: "); quoted {
				message = cause
			}
			return joined("ImagePullBackOff", message), until
		case crashLoop:
			return crashLoop + exit(last), until
		}
		return joined(w.Reason, w.Message), until
	}
	// The first crash may be the last one, and an exit without an error is none: an init container completes.
	if last == nil || last.ExitCode == 0 || crashes < 2 || !brief(last) {
		return "", until
	}
	if running := s.State.Running; running != nil {
		if until = running.StartedAt.Add(calm); !now.Before(until) {
			return "", time.Time{}
		}
	}
	return crashLoop + exit(last), until
}

// brief reports whether a container ended soon after its start. That is not known of one whose start is
// not, or whose end was not seen: after a power cut the container runtime (reason Unknown) or the
// kubelet (ContainerStatusUnknown) finds that it does not run.
func brief(t *corev1.ContainerStateTerminated) bool {
	return t.Reason != "Unknown" && t.Reason != "ContainerStatusUnknown" &&
		!t.StartedAt.IsZero() && t.FinishedAt.Sub(t.StartedAt.Time) < calm
}

// exit describes how a container ended: exit code and the last line of its message, which may be the
// end of its log.
func exit(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	return joined(fmt.Sprintf(", exit code %d", t.ExitCode), lines[len(lines)-1])
}

func joined(reason, message string) string {
	return strings.TrimSuffix(strings.TrimPrefix(reason+": "+message, ": "), ": ")
}
