package rollupcontroller

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/pkg/sidecar"
)

// beside is an API server's pod with what stands beside the API server.
type beside struct {
	tool      string
	pod       *corev1.Pod
	container string // the API server's
	plugins   []v1alpha1.Plugin
	reporter  *corev1.Pod // a pod of its own; nil: none
	namespace string      // the reporter's
}

// containers are the pod's, the init containers first.
func (b *beside) containers() []corev1.Container {
	return slices.Concat(b.pod.Spec.InitContainers, b.pod.Spec.Containers)
}

// pluginContainers are those that share the folder of a plugin's sockets with the
// API server.
func (b *beside) pluginContainers() []string {
	var endpoints []string
	for _, p := range b.plugins {
		endpoints = append(endpoints, p.Endpoint)
	}
	mounts, err := sidecar.SocketMounts(&b.pod.Spec, b.container, endpoints)
	if err != nil {
		return nil
	}
	served := apiServer(b.pod, b.container)
	var names []string
	for _, c := range b.containers() {
		shares := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.ContainsFunc(mounts, func(s corev1.VolumeMount) bool { return s.Name == m.Name })
		})
		if shares && c.Name != served && !isReporter(c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

func isReporter(container string) bool {
	return container == sidecar.ContainerName || container == target.ForeignReporter
}

// look has the commands that show more, by keyID, and the reporter's under "".
func (b *beside) look() map[string]string {
	all := map[string]string{}
	if b.reporter != nil {
		all[""] = fmt.Sprintf("%s logs -n %s %s", b.tool, b.namespace, b.reporter.Name)
	}
	for _, c := range b.containers() {
		if isReporter(c.Name) && b.reporter == nil {
			all[""] = b.logs(c.Name)
		}
	}
	names := b.pluginContainers()
	for _, p := range b.plugins {
		if name := b.serves(p, names); name != "" {
			all[p.KeyID] = b.logs(name)
		}
	}
	return all
}

func (b *beside) logs(container string) string {
	return fmt.Sprintf("%s logs -n %s %s -c %s", b.tool, b.pod.Namespace, b.pod.Name, container)
}

// serves is the container of a plugin: the only one, or the one that is told the
// socket.
func (b *beside) serves(p v1alpha1.Plugin, names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	address, err := v1alpha1.SocketAddress(p.Endpoint)
	if err != nil {
		return ""
	}
	socket := path.Base(address)
	for _, c := range b.containers() {
		told := slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(word string) bool { return strings.Contains(word, socket) }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return strings.Contains(e.Value, socket) })
		if told && slices.Contains(names, c.Name) {
			return c.Name
		}
	}
	return ""
}

// faults are the plugins' and the reporter's containers that cannot start.
func (b *beside) faults(now time.Time) []rollup.Fault {
	var all []rollup.Fault
	plugins := b.pluginContainers()
	add := func(pod *corev1.Pod, ours func(name string) bool) {
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if !ours(s.Name) {
				continue
			}
			why, until := stuck(&s, now)
			if why == "" {
				continue
			}
			look := fmt.Sprintf("%s describe -n %s pod %s", b.tool, pod.Namespace, pod.Name)
			if s.RestartCount > 0 || s.LastTerminationState.Terminated != nil {
				look = fmt.Sprintf("%s logs -n %s %s -c %s --previous", b.tool, pod.Namespace, pod.Name, s.Name)
			}
			all = append(all, rollup.Fault{Pod: pod.Namespace + "/" + pod.Name, Container: s.Name, Why: why, Look: look, Until: until, Reporter: b.reporter == pod || isReporter(s.Name)})
		}
	}
	add(b.pod, func(name string) bool { return isReporter(name) || slices.Contains(plugins, name) })
	if b.reporter != nil {
		add(b.reporter, func(string) bool { return true })
	}
	return all
}

// calm is how long a container that crashed must run before it counts as started.
// Between two crashes it runs for a moment, and that is no recovery.
const calm = 30 * time.Second

// stuck says why a container cannot start, empty where it runs or may yet start,
// and when to judge again.
func stuck(s *corev1.ContainerStatus, now time.Time) (why string, until time.Time) {
	crashed := s.LastTerminationState.Terminated
	switch {
	case s.State.Waiting != nil:
		w := s.State.Waiting
		switch w.Reason {
		case "", "ContainerCreating", "PodInitializing":
			return "", time.Time{}
		case "ErrImagePull", "ImagePullBackOff": // by turns; the second quotes the first
			why := w.Message
			if _, cause, quoted := strings.Cut(why, "ErrImagePull: "); quoted {
				why = cause
			}
			return strings.TrimSuffix("ImagePullBackOff: "+why, ": "), time.Time{}
		case "CrashLoopBackOff": // the kubelet's message counts seconds
			return w.Reason + exit(crashed), time.Time{}
		default:
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": "), time.Time{}
		}
	case s.State.Terminated != nil:
		// One that fails for the first time is started again at once; one that ends in
		// order may be meant to.
		if e := s.State.Terminated; e.ExitCode != 0 && s.RestartCount == 0 || e.ExitCode == 0 && s.RestartCount <= 1 {
			return "", time.Time{}
		}
		return "CrashLoopBackOff" + exit(s.State.Terminated), time.Time{}
	case s.State.Running != nil && s.RestartCount > 1 && crashed != nil && brief(crashed):
		if until := s.State.Running.StartedAt.Add(calm); now.Before(until) {
			return "CrashLoopBackOff" + exit(crashed), until
		}
	}
	return "", time.Time{}
}

// brief says whether a container ended soon after it had begun; one that ran for
// long, and ended with its node, does not crash.
func brief(t *corev1.ContainerStateTerminated) bool {
	return !t.StartedAt.IsZero() && t.FinishedAt.Sub(t.StartedAt.Time) < calm
}

// logTail is from how many bytes on a message is the cut end of a log: the kubelet
// takes 2048 (k8s.io/kubernetes, pkg/kubelet/kuberuntime).
const logTail = 2000

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
	if len(t.Message) >= logTail { // of a log's end the first line may be half of one
		line = lines[len(lines)-1]
	}
	if line != "" {
		text += ": " + line
	}
	return text
}
