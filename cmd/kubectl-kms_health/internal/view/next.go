package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// commands finds the command to run next: one that works as it is typed, with the pods and
// containers of this cluster.
type commands struct {
	tool     string // oc or kubectl
	operator *Operator
	pods     []*corev1.Pod
	servers  map[string]contract.APIServer
}

func newCommands(s *Snapshot, status *Status) *commands {
	status.Operator = readOperator(s)
	c := &commands{tool: "kubectl", operator: &status.Operator, pods: s.pods(), servers: APIServers(s.Objects)}
	openShift := func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(o.GetAPIVersion(), contract.OperatorGroup+"/") || o.GetKind() == KindClusterOperator
	}
	if slices.ContainsFunc(s.Objects, openShift) {
		c.tool = "oc"
	}
	return c
}

// APIServers are where the API servers run, by name: those of OpenShift, and those of the
// operator's configuration.
func APIServers(objects []*unstructured.Unstructured) map[string]contract.APIServer {
	servers := map[string]contract.APIServer{}
	for _, r := range contract.Resources {
		servers[r.APIServer.Name] = r.APIServer
	}
	for _, o := range objects {
		if o.GetKind() != KindConfigMap {
			continue
		}
		data, _, _ := unstructured.NestedString(o.Object, "data", contract.ConfigFile)
		configuration, err := v1alpha1.DecodeOperator([]byte(data))
		if err != nil {
			continue
		}
		for _, a := range configuration.APIServers {
			servers[a.Name] = contract.APIServer{Name: a.Name, Namespace: a.Namespace, PodSelector: a.PodSelector, Container: a.Container}
		}
	}
	return servers
}

// word is what may be part of a command without quotes. Names come from reports and files.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.,/=_-]*$`)

// command makes a command; nil if a part of it is no plain word.
func command(node, format string, words ...string) *Command {
	arguments := make([]any, len(words))
	for i, w := range words {
		if !word.MatchString(w) {
			return nil
		}
		arguments[i] = w
	}
	return &Command{Node: node, Command: fmt.Sprintf(format, arguments...)}
}

// ofPlugin is the command for a plugin that is not known to be healthy.
func (c *commands) ofPlugin(a *APIServer, p *Plugin) *Command {
	switch {
	case p.State.Unhealthy():
		if pod, container := c.pluginOf(a, p); container != "" {
			return c.logs(pod, container)
		}
		return command("", "%s get pods -A --field-selector spec.nodeName=%s", c.tool, p.Node)
	case p.State == rollup.Skewed:
		if len(p.Node) == 0 || !word.MatchString(p.Node) {
			return nil
		}
		return &Command{Node: p.Node, Command: "chronyc tracking"}
	}
	if pod, container := c.reporterOf(a, p.Node); container != "" {
		return c.logs(pod, container)
	}
	return command("", "%s get node %s", c.tool, p.Node)
}

// ofCondition is the command for what only a condition shows.
func (c *commands) ofCondition(a *APIServer, condition *Condition) *Command {
	server, known := c.servers[a.Name]
	if condition.Reason == contract.PluginNotRunning && known {
		selector := labels.FormatLabels(server.PodSelector)
		return command("", "%s get pods -n %s -o wide -l %s", c.tool, server.Namespace, selector)
	}
	return c.operatorLog()
}

// logs shows a container's log. A static pod's is read on its node: the API server there, or every
// one, may not answer.
func (c *commands) logs(pod *corev1.Pod, container string) *Command {
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return command(pod.Spec.NodeName, "crictl logs --tail=20 $(crictl ps -aq --name '^%s$' | head -1)", container)
	}
	if waiting(pod, container) {
		return command("", "%s describe pod -n %s %s", c.tool, pod.Namespace, pod.Name)
	}
	return command("", "%s logs -n %s %s -c %s --tail=20", c.tool, pod.Namespace, pod.Name, container)
}

// waiting reports whether a container has never run, so that it has no log.
func waiting(pod *corev1.Pod, container string) bool {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container {
			return s.State.Waiting != nil && s.RestartCount == 0
		}
	}
	return true
}

// serverPods are an API server's pods on a node, the newest first.
func (c *commands) serverPods(a *APIServer, node string) (pods []*corev1.Pod) {
	server, known := c.servers[a.Name]
	if !known || len(server.PodSelector) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(server.PodSelector)
	for _, pod := range c.pods {
		if pod.Namespace == server.Namespace && pod.Spec.NodeName == node && selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// pluginOf finds the container of a plugin beside its API server: the one with the socket in its
// arguments, else the one that is named after the key, else the only one that is named after KMS.
// The container is empty if none is known to be it.
func (c *commands) pluginOf(a *APIServer, p *Plugin) (*corev1.Pod, string) {
	for _, pod := range c.serverPods(a, p.Node) {
		var named, others []string
		for _, container := range containers(pod) {
			if container.Name == c.servers[a.Name].Container || isReporter(container.Name) {
				continue
			}
			if p.KeyID != "" && mentions(&container, "kms-"+p.KeyID+".sock") {
				return pod, container.Name
			}
			if p.KeyID != "" && strings.HasSuffix(container.Name, "-"+p.KeyID) {
				named = append(named, container.Name)
			}
			if strings.Contains(container.Name, "kms") {
				others = append(others, container.Name)
			}
		}
		for _, candidates := range [][]string{named, others} {
			if len(candidates) == 1 {
				return pod, candidates[0]
			}
		}
	}
	return nil, ""
}

func containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

func mentions(container *corev1.Container, text string) bool {
	words := slices.Concat(container.Command, container.Args)
	for _, e := range container.Env {
		words = append(words, e.Value)
	}
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, text) })
}

// isReporter recognizes the container of a reporter, OpenShift's own included.
func isReporter(container string) bool {
	return container == contract.ReporterContainer || container == "kms-health-reporter"
}

// reporterOf finds the reporter on a node: a pod of its own, else a container of the API server's.
func (c *commands) reporterOf(a *APIServer, node string) (*corev1.Pod, string) {
	own := func(pod *corev1.Pod) bool {
		return pod.Labels[contract.APIServerLabel] == a.Name && pod.Spec.NodeName == node
	}
	at := slices.IndexFunc(c.pods, own)
	if at >= 0 && len(c.pods[at].Spec.Containers) > 0 {
		return c.pods[at], c.pods[at].Spec.Containers[0].Name
	}
	for _, pod := range c.serverPods(a, node) {
		for _, container := range containers(pod) {
			if isReporter(container.Name) {
				return pod, container.Name
			}
		}
	}
	return nil, ""
}

// operatorLog is the log of the pod that works, which holds the Lease; without one, of all.
func (c *commands) operatorLog() *Command {
	namespace := c.operator.Namespace
	if namespace == "" {
		return nil
	}
	for _, pod := range c.pods {
		isLeader := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name} == types.NamespacedName{Namespace: namespace, Name: c.operator.Leader}
		if isLeader && !c.operator.expired {
			return command("", "%s logs -n %s %s --tail=20", c.tool, namespace, pod.Name)
		}
	}
	return command("", "%s logs -n %s -l app.kubernetes.io/name=%s --prefix --tail=20", c.tool, namespace, contract.OperatorName)
}

// operatorPods shows why no pod of the operator runs.
func (c *commands) operatorPods() *Command {
	if c.operator.Namespace == "" {
		return nil
	}
	return command("", "%s describe deployments,pods -n %s -l app.kubernetes.io/name=%s", c.tool, c.operator.Namespace, contract.OperatorName)
}

func (c *commands) editConfiguration(namespace string) *Command {
	return command("", "%s edit configmap -n %s %s", c.tool, namespace, contract.OperatorConfigMap)
}
