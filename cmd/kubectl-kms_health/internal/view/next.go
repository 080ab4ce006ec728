package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kms-health/kms-health/pkg/contract"
)

// APIServers returns where API servers run, by name: OpenShift's whose resources are there, and those in the operator's
// configuration.
func APIServers(s *Snapshot) map[string]contract.APIServer {
	servers := map[string]contract.APIServer{}
	for _, o := range s.Objects {
		if r, is := ResourceOf(o); is && !r.PerAPIServer() {
			servers[r.APIServer.Name] = r.APIServer
		}
	}
	_, configuration, _ := s.configuration()
	for i := 0; configuration != nil && i < len(configuration.APIServers); i++ {
		a := &configuration.APIServers[i]
		servers[a.Name] = contract.APIServer{Namespace: a.Namespace, PodSelector: a.PodSelector, Container: a.Container}
	}
	return servers
}

// Word is what may be part of a command without quotes. Names come from reports, files and etcd.
var Word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.,/=_-]*$`)

// command makes a command of oc or kubectl; empty if a part of it is no plain word.
func (e *evaluation) command(format string, words ...any) string {
	if slices.ContainsFunc(words, func(w any) bool { return !Word.MatchString(w.(string)) }) {
		return ""
	}
	return e.tool + " " + fmt.Sprintf(format, words...)
}

// ofPlugin is the command for a plugin that is not known to be healthy: for its log, or its reporter's. The container
// is the only one in its pod that has a mark; the first such mark counts. A reporter has its name; a plugin the socket
// in its arguments, or a name after the key, or after KMS.
func (e *evaluation) ofPlugin(a *APIServer, p *Plugin) string {
	ofReporter := !p.State.Unhealthy()
	marks, otherwise := []string{contract.ReporterContainer + "\n", ""}, "get node %s"
	if !ofReporter {
		marks = []string{"kms-" + p.KeyID + ".sock", "-" + p.KeyID + "\n", "kms"}
		otherwise = "get pods -A --field-selector spec.nodeName=%s"
	}
	for _, pod := range e.podsOf(a, p.Node) {
		for _, mark := range marks {
			lacks := func(c corev1.Container) bool {
				text := c.Name + "\n" + strings.Join(slices.Concat(c.Command, c.Args), " ")
				return c.Name == e.servers[a.Name].Container || contract.IsReporter(c.Name) != ofReporter ||
					!strings.Contains(text, mark)
			}
			found := slices.DeleteFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), lacks)
			if len(found) == 1 {
				return e.logs(pod, found[0].Name)
			}
		}
	}
	return e.command(otherwise, p.Node)
}

// podsOf are pods on a node, the newest first: those of an API server's reporters, then its own.
func (e *evaluation) podsOf(a *APIServer, node string) []*corev1.Pod {
	var reporters, servers []*corev1.Pod
	server := e.servers[a.Name]
	for _, pod := range e.pods {
		switch selector := labels.SelectorFromSet(server.PodSelector); {
		case pod.Spec.NodeName != node:
		case pod.Labels[contract.APIServerLabel] == a.Name:
			reporters = append(reporters, pod)
		case !selector.Empty() && selector.Matches(labels.Set(pod.Labels)) && pod.Namespace == server.Namespace:
			servers = append(servers, pod)
		}
	}
	return append(reporters, servers...)
}

// ofCondition is the command for what only a condition shows.
func (e *evaluation) ofCondition(a *APIServer, condition *metav1.Condition) string {
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
func (e *evaluation) logs(pod *corev1.Pod, container string) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container && s.State.Waiting != nil && s.RestartCount == 0 {
			return e.command("describe pod -n %s %s", pod.Namespace, pod.Name)
		}
	}
	return e.command("logs -n %s %s -c %s --tail=20", pod.Namespace, pod.Name, container)
}

const operatorLabel = "app.kubernetes.io/name=" + contract.OperatorName

// operatorLog is the command for the logs of all its pods. The leader logs more than the others.
func (e *evaluation) operatorLog() string {
	return e.command("logs -n %s -l %s --prefix --tail=20", e.Operator.Namespace, operatorLabel)
}
