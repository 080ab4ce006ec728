package pluginhealthcontroller

import (
	"cmp"
	"fmt"
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
	pod      *corev1.Pod
	served   string      // the API server's container; empty: there is none
	names    []string    // of the plugins' containers
	reporter *corev1.Pod // the reporter's own pod; nil: none
}

// newBeside finds the containers of plugins: those that share the folder of their sockets with the API server.
func newBeside(t *delivery.Snapshot, pod *corev1.Pod, plugins []v1alpha1.Plugin, reporter *corev1.Pod) *beside {
	b := &beside{pod: pod, reporter: reporter}
	served, err := objects.APIServerContainer(&pod.Spec, t.Container)
	if err != nil {
		return b
	}
	b.served = served.Name
	mounts, _ := objects.SocketMounts(&pod.Spec, t.Container, plugins...)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		shares := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.ContainsFunc(mounts, func(s corev1.VolumeMount) bool { return s.Name == m.Name })
		})
		if shares && c.Name != b.served && !contract.IsReporter(c.Name) {
			b.names = append(b.names, c.Name)
		}
	}
	return b
}

// faults returns the plugins' and the reporter's containers that cannot start.
func (l *look) faults(b *beside) (all []rollup.Finding) {
	l.loops = map[string]bool{}
	add := func(pod *corev1.Pod, container, reason, why string) {
		if why != "" {
			all = append(all, rollup.Finding{Reason: reason, Node: b.pod.Spec.NodeName, Detail: why,
				Text: fmt.Sprintf("container %s of pod %s/%s cannot start", container, pod.Namespace, pod.Name)})
		}
	}
	of := func(pod *corev1.Pod) {
		for _, s := range statuses(pod) {
			reporter := pod == b.reporter || s.Name == contract.ReporterContainer
			if !reporter && !slices.Contains(b.names, s.Name) {
				continue
			}
			reason := contract.PluginNotRunning
			if reporter {
				reason = contract.ReporterNotRunning
			}
			key := podUID(pod) + " " + s.Name
			loops, had := l.was.loops[key]
			if !had && l.first && s.RestartCount > 1 { // the condition of an earlier process may be about it
				loops = l.degraded.Reason == reason || l.reporting.Reason == reason
			}
			var why string
			why, l.loops[key] = l.cannotStart(&s, loops)
			add(pod, s.Name, reason, why)
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

// statuses returns the statuses of a pod's containers, the init containers first.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

const (
	// calm is how long a container that crashed must run before it counts as started.
	calm      = 30 * time.Second
	crashLoop = "CrashLoopBackOff"
)

// cannotStart returns why a container cannot start, or ends soon after each start, with an error or not; empty: nothing
// shows that. The text has nothing that changes by itself, such as the seconds of a back-off. loops means that the
// kubelet has waited to start it again, and it has not run for long enough since.
func (l *look) cannotStart(s *corev1.ContainerStatus, loops bool) (why string, stillLoops bool) {
	last := s.LastTerminationState.Terminated
	if s.State.Terminated != nil {
		last = s.State.Terminated
	}
	if w := s.State.Waiting; w != nil {
		switch w.Reason {
		case "", "ContainerCreating", "PodInitializing", "RestartingAllContainers":
			return "", loops
		case "ErrImagePull", "ImagePullBackOff": // they alternate, with different messages
			return "ImagePullBackOff", loops
		case crashLoop:
			return crashLoop + exit(last), true
		}
		return joined(w.Reason, w.Message), loops
	}
	if running := s.State.Running; running != nil {
		started := l.since(fmt.Sprint("runs ", s.Name, s.ContainerID, running.StartedAt), false).Add(calm)
		if loops = loops && l.now.Before(started); loops {
			l.requeue(started)
		}
	}
	completed := s.State.Terminated != nil && s.Ready // an init container: no other one that has ended is Ready
	if loops && !completed {
		return crashLoop + exit(last), true
	}
	return "", false
}

// exit describes how a container ended. The kubelet's reason is Error, for example, or OOMKilled.
func exit(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(", exit code %d (%s)", t.ExitCode, t.Reason)
}

func joined(reason, message string) string {
	return strings.TrimSuffix(strings.TrimPrefix(reason+": "+message, ": "), ": ")
}
