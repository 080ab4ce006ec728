package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// node looks up a Node that exists.
func (s *syncing) node(name string) (n source.Node, exists bool) {
	return s.target.Sources.Cluster.Nodes.Get("", name)
}

// observe adds what runs to the input, unless a source is not known. absent is since when no API server
// has a pod.
func (s *syncing) observe(in *rollup.Input, resource *operatorcr.Status, absent time.Time) (known bool) {
	t := s.target
	var pods []*corev1.Pod
	if !t.SetsKnown && len(resource.Reports) == 0 || !t.Sources.Cluster.OwnPods.Known() ||
		!t.Sources.Cluster.Nodes.Known() || !t.NamespaceMissing && !t.Sources.Pods.Known() {
		return false
	}
	if !t.NamespaceMissing {
		pods = t.Sources.AllPods()
	}
	ours := reporterPods(t.Name, t.Sources.Cluster.OwnPods.All())
	if in.Alone = s.alone(resource, pods, absent); in.Alone {
		pods = agents(ours)
	}
	current, others := onePerNode(pods)
	in.Nodes, in.Others = s.expect(current, ours, s.node), writers(t, others, s.node)
	s.attend(in.Nodes, current, others, ours, resource)
	in.WriteKey, in.NoWriteKey = configuredKey(t)
	if t.State.NotProbed != "" {
		in.NotObserved = append(in.NotObserved, rollup.Finding{Reason: contract.ProviderNotProbed, Text: t.State.NotProbed})
	}
	if why := s.refused(); why != "" {
		in.NotObserved = append(in.NotObserved, rollup.Finding{Reason: contract.SourceUnreadable, Text: why})
		doubt(in, s.node)
	}
	s.replaced.Observe(in.Nodes, resource.Nodes, s.now)
	if s.began.IsZero() {
		s.began = s.now
	}
	in.Began = s.began
	s.expectations.Observe(in.Nodes, s.now)
	return true
}

// refused is why the pods of the API server, which were known, can no longer be listed; empty:
// they can, or the API server has just started, whose authorizer may not have read the roles.
func (s *syncing) refused() string {
	pods := s.target.Sources.Pods
	err, failedFor := pods.Err(), pods.FailedFor()
	switch {
	case !apiserver.Denied(err):
		return ""
	case failedFor <= apiserver.Starting:
		s.requeue(s.now.Add(apiserver.Starting - failedFor + time.Second))
		return ""
	}
	return fmt.Sprintf("the pods of namespace %s cannot be read: %v", s.target.Namespace, err)
}

// doubt makes of nodes as they once were what is still known: each of these, and each that
// reports, may have an API server, which may use another key.
func doubt(in *rollup.Input, node func(name string) (source.Node, bool)) {
	for i := range in.Nodes {
		in.Nodes[i].WriteKeyNotKnown = true
	}
	for i := range in.Reports {
		name := in.Reports[i].Node
		its, exists := node(name)
		if exists && !slices.ContainsFunc(in.Nodes, func(n rollup.Node) bool { return n.Name == name }) {
			in.Nodes = append(in.Nodes, rollup.Node{Name: name, Ready: its.Ready})
		}
	}
}

// alone reports whether no API server has had a pod for a QuietPeriod, since some time that
// is zero where the last sync saw one: they may run outside of pods, or the selector matches
// none. While the only one is replaced there is no pod either. After a restart of the operator
// the last transition of the condition is that time.
func (s *syncing) alone(resource *operatorcr.Status, pods []*corev1.Pod, absent time.Time) bool {
	if slices.ContainsFunc(pods, apiserver.Alive) {
		return false
	}
	if absent.IsZero() {
		absent = s.now
		if was := resource.Conditions[contract.HealthReporting]; was.Reason == contract.NoPods &&
			was.LastTransitionTime.Before(absent) {
			absent = was.LastTransitionTime
		}
	}
	s.absent = absent
	until := absent.Add(rollup.QuietPeriod)
	if s.now.Before(until) {
		s.requeue(until)
		return false
	}
	return true
}

// agents are the reporters of a DaemonSet, which probe the sockets of their node.
func agents(ours map[string][]*corev1.Pod) (agents []*corev1.Pod) {
	for _, pods := range ours {
		if pod := newest(pods); pod != nil && v1alpha1.Mode(pod.Labels[contract.ModeLabel]).ServesNode() {
			agents = append(agents, pod)
		}
	}
	return agents
}

// newer reports whether a pod is newer than another, which may be nil.
func newer(pod, other *corev1.Pod) bool {
	return other == nil || other.CreationTimestamp.Time.Before(pod.CreationTimestamp.Time) ||
		other.CreationTimestamp.Equal(&pod.CreationTimestamp) && other.Name < pod.Name
}

// onePerNode returns the pod that counts on each node, and all others that run: those that
// are being deleted, and earlier ones.
func onePerNode(pods []*corev1.Pod) (current map[string]*corev1.Pod, others []*corev1.Pod) {
	current = map[string]*corev1.Pod{}
	for _, pod := range pods {
		name := pod.Spec.NodeName
		switch {
		case !apiserver.Alive(pod):
		case pod.DeletionTimestamp != nil:
			others = append(others, pod)
		case current[name] == nil:
			current[name] = pod
		case newer(pod, current[name]):
			others = append(others, current[name])
			current[name] = pod
		default:
			others = append(others, pod)
		}
	}
	return current, others
}

// writers are what pods write with, as far as that is known.
func writers(t *apiserver.Published, pods []*corev1.Pod, node func(name string) (source.Node, bool)) (
	all []rollup.Writer) {
	for _, pod := range pods {
		if _, exists := node(pod.Spec.NodeName); !exists {
			continue
		}
		w := rollup.Writer{Node: pod.Spec.NodeName, NotKnown: true}
		if plugins, known, current := pluginsOf(t, pod); known && current && loaded(t, pod) {
			w.WriteKey = apiserver.WriteKey(plugins)
			w.NotKnown = w.WriteKey == "" && t.State.NotProbed != ""
		}
		all = append(all, w)
	}
	return all
}

// pluginsOf are the plugins of a pod, whether they are known, and whether that is how they are
// now: a set that was recorded, and cannot be read any more, may have been replaced. The set of a
// revision stays as it is.
func pluginsOf(t *apiserver.Published, pod *corev1.Pod) (plugins []v1alpha1.Plugin, known, current bool) {
	if t.Plugins != nil {
		return t.Plugins, true, true
	}
	revision := apiserver.RevisionOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels)
	if plugins, read := t.State.Revisions[revision]; read {
		return plugins, true, true
	}
	return t.State.Live, t.SetsKnown && revision == "", t.LiveKnown
}

// loadDelay is how much later than a write of a mounted Secret a container must have been started
// to have read it: a kubelet updates the mount of a running pod within about a minute, and the
// start is by its node's clock.
const loadDelay = 5 * time.Minute

// loaded reports whether the API server of a pod is known to have loaded the plugin set that the
// pod uses. The Secret of a revision does not change. Another one does, as the plugins of the
// operator's configuration: the process may still use what it has read at its start. That
// kube-apiserver reloads its configuration is seen in its metrics alone.
func loaded(t *apiserver.Published, pod *corev1.Pod) bool {
	since := t.State.LiveSince
	if t.Plugins == nil && apiserver.RevisionOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels) != "" || since.IsZero() {
		return true
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey] // which may be younger than its process
	if !mirror && !pod.CreationTimestamp.Time.Before(since) {
		return true
	}
	name := apiServer(pod, t.Container)
	if t.Plugins == nil {
		since = since.Add(loadDelay)
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == name && s.State.Running != nil && s.State.Running.StartedAt.After(since)
	})
}

// expect returns the nodes of the pods, each with its pod's plugins, if any. ours are
// the companions and agents, by node.
func (s *syncing) expect(pods map[string]*corev1.Pod, ours map[string][]*corev1.Pod,
	node func(name string) (source.Node, bool)) (expected []rollup.Node) {
	t := s.target
	for name, pod := range pods {
		its, exists := node(name)
		if !exists {
			continue
		}
		n := rollup.Node{Name: name, Ready: its.Ready, PodSince: began(pod)}
		plugins, known, current := pluginsOf(t, pod)
		if known {
			n.Keys, n.WriteKey, n.NotLoaded = make([]string, 0, len(plugins)), apiserver.WriteKey(plugins), !loaded(t, pod)
			n.WriteKeyNotKnown = !current || n.WriteKey == "" && t.State.NotProbed != ""
			for _, p := range plugins {
				n.Keys = append(n.Keys, p.KeyID)
			}
		}
		v := beside{tool: t.Tool, pod: pod, container: t.Container, plugins: plugins, reporter: newest(ours[name]),
			namespace: s.Namespace}
		n.QuietUntil, n.Leaving = quiet(pod, t.Container, v.isPlugin())
		var again time.Time
		n.Faults, again = v.faults(s.now)
		s.requeue(again)
		n.Look = v.look()
		expected = append(expected, n)
	}
	slices.SortFunc(expected, func(a, b rollup.Node) int { return strings.Compare(a.Name, b.Name) })
	return expected
}

// began is when a pod was started on its node. The mirror of a static pod may be created
// again long after.
func began(pod *corev1.Pod) time.Time {
	if at := pod.Status.StartTime; at != nil {
		return at.Time
	}
	return pod.CreationTimestamp.Time
}

// apiServer is the name of the API server's container: the one that is configured,
// else the pod's first one except the reporter, as for the sidecar.
func apiServer(pod *corev1.Pod, configured string) string {
	if configured != "" {
		return configured
	}
	for i := range pod.Spec.Containers {
		if name := pod.Spec.Containers[i].Name; name != contract.ReporterContainer {
			return name
		}
	}
	return ""
}

// quiet is until when missing reports of a pod's node are excused, since its API server or
// one of its plugins started or ended; and whether the API server exited normally.
// A restart of another container of the pod excuses nothing.
func quiet(pod *corev1.Pod, container string, isPlugin func(container string) bool) (until time.Time, leaving bool) {
	last := began(pod)
	container = apiServer(pod, container)
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name != container && !isPlugin(s.Name) {
			continue
		}
		if e := s.LastTerminationState.Terminated; e != nil && e.FinishedAt.After(last) {
			last = e.FinishedAt.Time // it is not started again yet
		}
		if r := s.State.Running; r != nil && r.StartedAt.After(last) {
			last = r.StartedAt.Time
		}
		if e := s.State.Terminated; e != nil {
			leaving = leaving || s.Name == container && e.ExitCode == 0
			if e.FinishedAt.After(last) {
				last = e.FinishedAt.Time
			}
		}
	}
	return last.Add(rollup.QuietPeriod), leaving
}
