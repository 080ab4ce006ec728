package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// observe adds what runs to the input, unless a source is not known.
func (s *syncing) observe(in *rollup.Input, resource *operatorcr.Status) (known bool) {
	t := s.target
	if !t.SetsKnown && len(resource.Reports) == 0 || !t.Sources.Cluster.OwnPods.Known() ||
		!t.Sources.Cluster.Nodes.Known() || !t.NamespaceMissing && !t.Sources.Pods.Known() {
		return false
	}
	var pods []*corev1.Pod
	if !t.NamespaceMissing {
		pods = t.Sources.Pods.All()
	}
	ours := reporterPods(t.Name, t.Sources.Cluster.OwnPods.All())
	// API servers may run outside of pods, or the selector may match none: then the reporters of a DaemonSet
	// count, which probe the sockets of their node.
	if in.Alone = !slices.ContainsFunc(pods, apiserver.Alive); in.Alone {
		pods = slices.DeleteFunc(slices.Concat(slices.Collect(maps.Values(ours))...), func(p *corev1.Pod) bool {
			return p.DeletionTimestamp != nil || !v1alpha1.Mode(p.Labels[contract.ModeLabel]).ServesNode()
		})
	}
	current, others := onePerNode(pods)
	in.Nodes, in.Others = s.expect(current, ours), s.writers(others)
	s.attend(in, current, others, ours, resource)
	in.WriteKey, in.NoWriteKey = configuredKey(t)
	if t.State.NotProbed != "" {
		in.NotObserved = append(in.NotObserved, rollup.Finding{Reason: contract.ProviderNotProbed, Text: t.State.NotProbed})
	}
	s.refused(in)
	return true
}

// refused adds to the input that the pods of the API server, which were known, can no longer be listed: each
// may have been replaced since, by one with another key. An API server that has just started may
// not have read the roles yet.
func (s *syncing) refused(in *rollup.Input) {
	err, failedFor := s.target.Sources.Pods.Err(), s.target.Sources.Pods.FailedFor()
	if !apiserver.Denied(err) {
		return
	}
	if failedFor <= apiserver.Starting {
		s.requeue(s.now.Add(apiserver.Starting - failedFor + time.Second))
		return
	}
	in.NotObserved = append(in.NotObserved, rollup.Finding{Reason: contract.SourceUnreadable,
		Text: fmt.Sprintf("the pods of namespace %s cannot be read: %v", s.target.Namespace, err)})
	for i := range in.Nodes {
		in.Nodes[i].WriteKeyNotKnown = true
	}
}

// newest is the newest pod that is not being deleted, of equally old ones the last by name; nil: there is
// none. While one delivery replaces another there are two on a node.
func newest(pods []*corev1.Pod) (best *corev1.Pod) {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && (best == nil || cmp.Or(
			pod.CreationTimestamp.Compare(best.CreationTimestamp.Time), strings.Compare(pod.Name, best.Name)) > 0) {
			best = pod
		}
	}
	return best
}

// onePerNode returns the pod that counts on each node, and all others that run: those that
// are being deleted, and earlier ones.
func onePerNode(pods []*corev1.Pod) (current map[string]*corev1.Pod, others []*corev1.Pod) {
	byNode := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if apiserver.Alive(pod) {
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
		}
	}
	current = map[string]*corev1.Pod{}
	for name, on := range byNode {
		if best := newest(on); best != nil {
			current[name] = best
		}
		others = append(others, slices.DeleteFunc(on, func(p *corev1.Pod) bool { return p == current[name] })...)
	}
	return current, others
}

// writers are what pods write with, as far as that is known.
func (s *syncing) writers(pods []*corev1.Pod) (all []rollup.Writer) {
	for _, pod := range pods {
		if _, exists := s.node(pod.Spec.NodeName); exists {
			_, w := uses(s.target, pod)
			all = append(all, w)
		}
	}
	return all
}

// uses are the plugins of an API server's pod, nil while they are not known, and what it writes with. A set
// that was recorded, and cannot be read any more, may have been replaced; that of a revision stays as
// it is. A provider that cannot be probed may be the one that encrypts.
func uses(t *apiserver.Published, pod *corev1.Pod) (plugins []v1alpha1.Plugin, w rollup.Writer) {
	w = rollup.Writer{Node: pod.Spec.NodeName, NotKnown: true}
	revision := apiserver.RevisionOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels)
	plugins, current := t.State.Revisions[revision]
	switch {
	case t.Plugins != nil:
		plugins, current = t.Plugins, true
	case current:
	case t.SetsKnown && revision == "":
		plugins, current = t.State.Live, t.LiveKnown
	default:
		return nil, w
	}
	w.WriteKey = apiserver.WriteKey(plugins)
	w.NotKnown = !current || !loaded(t, pod) || w.WriteKey == "" && t.State.NotProbed != ""
	return append([]v1alpha1.Plugin{}, plugins...), w
}

// configuredKey is the write key of the current configuration, and whether it is known to have none.
func configuredKey(t *apiserver.Published) (key string, none bool) {
	if !t.LiveKnown {
		return "", false
	}
	key = apiserver.WriteKey(t.State.Live)
	return key, key == "" && t.State.NotProbed == ""
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
	if t.Plugins == nil {
		since = since.Add(loadDelay)
	}
	return runningSince(pod, t.Container).After(since)
}

// expect returns the nodes of the pods, each with its pod's plugins, if any. ours are
// the companions and agents, by node.
func (s *syncing) expect(pods map[string]*corev1.Pod, ours map[string][]*corev1.Pod) (expected []rollup.Node) {
	t := s.target
	for name, pod := range pods {
		its, exists := s.node(name)
		if !exists {
			continue
		}
		plugins, w := uses(t, pod)
		n := rollup.Node{Name: name, Ready: its.Ready, PodSince: began(pod),
			WriteKey: w.WriteKey, WriteKeyNotKnown: w.NotKnown}
		if plugins != nil {
			n.Keys = make([]string, 0, len(plugins))
			for _, p := range plugins {
				n.Keys = append(n.Keys, p.KeyID)
			}
		}
		v := beside{t.Tool, pod, plugins, pluginContainers(pod, t.Container, plugins), newest(ours[name])}
		n.QuietUntil = quiet(pod, t.Container, v.names)
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

// runningSince is when the container of an API server was last started; zero: it does not run. Whether
// it is Ready does not matter: an unhealthy plugin keeps it from that.
func runningSince(pod *corev1.Pod, container string) (at time.Time) {
	container = apiServer(pod, container)
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container && s.State.Running != nil {
			at = s.State.Running.StartedAt.Time
		}
	}
	return at
}

// quiet is until when missing reports of a pod's node are excused, since its API server or
// one of its plugins started or ended. A restart of another container of the pod excuses nothing.
func quiet(pod *corev1.Pod, container string, plugins []string) (until time.Time) {
	last := began(pod)
	container = apiServer(pod, container)
	for _, s := range statuses(pod) {
		if s.Name != container && !slices.Contains(plugins, s.Name) {
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
