package status

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/podstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// beside is an API server's pod with its plugin and reporter containers.
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
// API server. known is false if that folder is not.
func (b *beside) pluginContainers() (names []string, known bool) {
	mounts, err := objects.SocketMounts(&b.pod.Spec, b.container, objects.Endpoints(b.plugins))
	if err != nil || len(mounts) == 0 {
		return nil, false
	}
	served := apiServer(b.pod, b.container)
	for _, c := range b.containers() {
		shares := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.ContainsFunc(mounts, func(s corev1.VolumeMount) bool { return s.Name == m.Name })
		})
		if shares && c.Name != served && !isReporter(c.Name) {
			names = append(names, c.Name)
		}
	}
	return names, true
}

// isPlugin recognizes a plugin's container by its name: while that is not known, any may be one.
func (b *beside) isPlugin() func(container string) bool {
	names, known := b.pluginContainers()
	return func(container string) bool {
		return slices.Contains(names, container) || !known && !isReporter(container)
	}
}

// nativeReporter is OpenShift's own reporter, an init container of its API servers' pods.
const nativeReporter = "kms-health-reporter"

func isReporter(container string) bool {
	return container == contract.ReporterContainer || container == nativeReporter
}

// look has the commands that show the logs, by keyID, and the reporter's under "".
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
	names, _ := b.pluginContainers()
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

// serves is the container of a plugin: the only one, or the one with the socket in its
// arguments.
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
		hasSocket := slices.ContainsFunc(slices.Concat(c.Command, c.Args),
			func(word string) bool { return strings.Contains(word, socket) }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return strings.Contains(e.Value, socket) })
		if hasSocket && slices.Contains(names, c.Name) {
			return c.Name
		}
	}
	return ""
}

// faults are the plugins' and the reporter's containers that cannot start, and when that may change by
// itself; zero: it does not.
func (b *beside) faults(now time.Time) (all []rollup.Finding, again time.Time) {
	add := func(pod *corev1.Pod, container, reason string, restarted bool, status podstatus.Status) {
		if status.Phase != podstatus.Failing {
			return
		}
		look := fmt.Sprintf("%s describe -n %s pod %s", b.tool, pod.Namespace, pod.Name)
		if restarted {
			look = fmt.Sprintf("%s logs -n %s %s -c %s --previous", b.tool, pod.Namespace, pod.Name, container)
		}
		all = append(all, rollup.Finding{Reason: reason, Node: b.pod.Spec.NodeName, Detail: status.Why, Look: look,
			Text: "container " + container + " cannot start"})
		if again.IsZero() || !status.Until.IsZero() && status.Until.Before(again) {
			again = status.Until
		}
	}
	plugins, _ := b.pluginContainers()
	restarted := func(s corev1.ContainerStatus) bool {
		return s.RestartCount > 0 || s.LastTerminationState.Terminated != nil
	}
	for _, s := range slices.Concat(b.pod.Status.InitContainerStatuses, b.pod.Status.ContainerStatuses) {
		reason := contract.PluginNotRunning
		if isReporter(s.Name) {
			reason = contract.ReporterNotRunning
		} else if !slices.Contains(plugins, s.Name) {
			continue
		}
		add(b.pod, s.Name, reason, restarted(s), podstatus.OfContainer(b.pod, &s, now))
	}
	if b.reporter != nil { // one that a kubelet ended or refused has no container's status
		add(b.reporter, contract.ReporterContainer, contract.ReporterNotRunning,
			slices.ContainsFunc(b.reporter.Status.ContainerStatuses, restarted), podstatus.Of(b.reporter, now))
	}
	return all, again
}
