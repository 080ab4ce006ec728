package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kms-health/kms-health/pkg/contract"
)

// APIServers returns where API servers run, by name: OpenShift's whose resources are there, and those in the operator's
// configuration.
func APIServers(objects []*unstructured.Unstructured) map[string]contract.APIServer {
	servers := map[string]contract.APIServer{}
	for _, o := range objects {
		if r, is := ResourceOf(o); is && !r.PerAPIServer() {
			servers[r.APIServer.Name] = r.APIServer
		}
		configuration, _ := configurationOf(o)
		for i := 0; configuration != nil && i < len(configuration.APIServers); i++ {
			a := &configuration.APIServers[i]
			servers[a.Name] = contract.APIServer{Namespace: a.Namespace, PodSelector: a.PodSelector, Container: a.Container}
		}
	}
	return servers
}

// word is what may be part of a command without quotes. Names come from reports and files.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.,/=_-]*$`)

// command makes a command of oc or kubectl; nil if a part of it is no plain word.
func (e *evaluation) command(format string, words ...string) *Command {
	arguments := []any{e.tool}
	for _, w := range words {
		if !word.MatchString(w) {
			return nil
		}
		arguments = append(arguments, w)
	}
	return &Command{fmt.Sprintf("%s "+format, arguments...)}
}

// ofPlugin is the command for a plugin that is not known to be healthy.
func (e *evaluation) ofPlugin(a *APIServer, p *Plugin) *Command {
	find, otherwise := e.reporterOf, "get node %s"
	if p.State.Unhealthy() {
		find, otherwise = e.pluginOf, "get pods -A --field-selector spec.nodeName=%s"
	}
	if pod, container := find(a, p); pod != nil {
		return e.logs(pod, container)
	}
	return e.command(otherwise, p.Node)
}

// ofCondition is the command for what only a condition shows.
func (e *evaluation) ofCondition(a *APIServer, condition *metav1.Condition) *Command {
	server, known := e.servers[a.Name]
	switch {
	case condition.Reason == contract.PluginNotRunning && known:
		return e.command("get pods -n %s -o wide -l %s", server.Namespace, labels.FormatLabels(server.PodSelector))
	case condition.Reason == contract.ReporterNotRunning:
		return e.command("get pods -A -o wide -l %s", contract.APIServerLabel+"="+a.Name)
	}
	return e.operatorLog()
}

// logs shows a container's log. One that has never run has none.
func (e *evaluation) logs(pod *corev1.Pod, container string) *Command {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container && s.State.Waiting != nil && s.RestartCount == 0 {
			return e.command("describe pod -n %s %s", pod.Namespace, pod.Name)
		}
	}
	return e.command("logs -n %s %s -c %s --tail=20", pod.Namespace, pod.Name, container)
}

// serverPods are an API server's pods on a node, the newest first.
func (e *evaluation) serverPods(a *APIServer, node string) (pods []*corev1.Pod) {
	server := e.servers[a.Name]
	for _, pod := range e.pods {
		isServer := len(server.PodSelector) > 0 && labels.SelectorFromSet(server.PodSelector).Matches(labels.Set(pod.Labels))
		if isServer && pod.Namespace == server.Namespace && pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// pluginOf finds the container of a plugin in its API server's pod: the only one with the socket in its
// arguments, else the only one that is named after the key, else the only one that is named after KMS.
// The pod is nil if none is found.
func (e *evaluation) pluginOf(a *APIServer, p *Plugin) (*corev1.Pod, string) {
	ofSocket := func(c *corev1.Container) bool {
		return strings.Contains(strings.Join(slices.Concat(c.Command, c.Args), " "), "kms-"+p.KeyID+".sock")
	}
	ofKey := func(c *corev1.Container) bool { return strings.HasSuffix(c.Name, "-"+p.KeyID) }
	ofKMS := func(c *corev1.Container) bool { return strings.Contains(c.Name, "kms") }
	for _, pod := range e.serverPods(a, p.Node) {
		for _, is := range []func(*corev1.Container) bool{ofSocket, ofKey, ofKMS} {
			found := slices.DeleteFunc(containers(pod), func(o corev1.Container) bool {
				return o.Name == e.servers[a.Name].Container || contract.IsReporter(o.Name) || !is(&o)
			})
			if len(found) == 1 {
				return pod, found[0].Name
			}
		}
	}
	return nil, ""
}

func containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// reporterOf finds the reporter of a plugin: in a pod of its own, else in the API server's.
func (e *evaluation) reporterOf(a *APIServer, p *Plugin) (*corev1.Pod, string) {
	pods := e.serverPods(a, p.Node)
	for _, pod := range e.pods {
		if pod.Labels[contract.APIServerLabel] == a.Name && pod.Spec.NodeName == p.Node {
			pods = append([]*corev1.Pod{pod}, pods...)
		}
	}
	for _, pod := range pods {
		for _, container := range containers(pod) {
			if contract.IsReporter(container.Name) {
				return pod, container.Name
			}
		}
	}
	return nil, ""
}

const operatorLabel = "app.kubernetes.io/name=" + contract.OperatorName

// operatorLog is the command for the logs of all its pods. The leader logs more than the others.
func (e *evaluation) operatorLog() *Command {
	return e.command("logs -n %s -l %s --prefix --tail=20", e.Operator.Namespace, operatorLabel)
}
