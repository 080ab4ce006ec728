package pluginhealthcontroller

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
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// observe adds what runs to the input, unless a source is not known.
func (s *healthSync) observe(in *rollup.Input, resource *operatorstatus.Status) (known bool) {
	t := s.target
	if !t.SetsKnown && len(resource.Reports) == 0 || !t.Sources.Cluster.OwnPods.HasSynced() ||
		!t.Sources.Cluster.Nodes.HasSynced() || !t.NamespaceMissing && !t.Sources.Pods.HasSynced() {
		return false
	}
	var pods []*corev1.Pod
	if !t.NamespaceMissing {
		pods = t.Sources.Pods.List()
	}
	pods, ours := alive(pods), reporterPods(t.Name, t.Sources.Cluster.OwnPods.List())
	// API servers may run outside of pods, or the selector may match none: then the reporters of a DaemonSet
	// count, which probe the sockets of their node.
	if in.Alone = len(pods) == 0; in.Alone {
		pods = slices.DeleteFunc(alive(ours), func(p *corev1.Pod) bool {
			return p.DeletionTimestamp != nil || !v1alpha1.Mode(p.Labels[contract.ModeLabel]).ServesNode()
		})
	}
	s.expect(in, byNode(pods), byNode(ours), resource)
	in.WriteKey, in.NoWriteKey = configuredKey(t)
	if t.State.NotProbed != "" {
		in.NotObserved = append(in.NotObserved, rollup.Finding{Reason: contract.ProviderNotProbed, Text: t.State.NotProbed})
	}
	s.refused(in)
	return true
}

// alive are the pods that are on a node and have not ended permanently.
func alive(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !delivery.Alive(p) })
}

func byNode(pods []*corev1.Pod) map[string][]*corev1.Pod {
	all := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		all[pod.Spec.NodeName] = append(all[pod.Spec.NodeName], pod)
	}
	return all
}

// expect adds the nodes that API servers run on to the input, each with the plugins of the pod that counts, and what
// the other pods write with. ours are the reporters' pods.
func (s *healthSync) expect(in *rollup.Input, pods, ours map[string][]*corev1.Pod, resource *operatorstatus.Status) {
	before := s.attendance
	s.attendance = make(map[string]nodeHistory, len(pods))
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		its, exists := s.node(name)
		if !exists {
			continue
		}
		pod := newest(pods[name])
		var replaced []string // the UIDs of others that are not being deleted
		for _, other := range pods[name] {
			if other == pod {
				continue
			}
			n, _ := uses(s.target, other)
			in.Others = append(in.Others, n)
			if uid, _ := objects.PodUID(other); uid != "" && other.DeletionTimestamp == nil {
				replaced = append(replaced, uid)
			}
		}
		if pod == nil {
			continue
		}
		n, plugins := uses(s.target, pod)
		b := newBeside(s.target, pod, plugins, newest(ours[name]))
		n.Ready, n.PodSince, n.QuietUntil, n.Look = its.Ready, began(pod), b.quiet(), b.look()
		n.Faults = b.faults(s.now, s.requeue)
		s.attend(in, before, &n, pod, replaced, ours[name], resource)
		in.Nodes = append(in.Nodes, n)
	}
}

// refused adds to the input that the pods of the API server, which were known, can no longer be listed: each
// may have been replaced since, by one with another key. An API server that has just started may
// not have read the roles yet.
func (s *healthSync) refused(in *rollup.Input) {
	err, failedFor := s.target.Sources.Pods.Err(), s.target.Sources.Pods.FailedFor()
	if !informers.Denied(err) {
		return
	}
	if failedFor <= informers.AuthorizerWarmup {
		s.requeue(s.now.Add(informers.AuthorizerWarmup - failedFor + time.Second))
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

// uses are the plugins of an API server's pod, nil while they are not known, and what it writes with. A set
// that was recorded, and cannot be read any more, may have been replaced; that of a revision stays as
// it is. A provider that cannot be probed may be the one that encrypts.
func uses(t *delivery.Snapshot, pod *corev1.Pod) (n rollup.Node, plugins []v1alpha1.Plugin) {
	n = rollup.Node{Name: pod.Spec.NodeName, WriteKeyNotKnown: true}
	revision := delivery.RevisionOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels)
	plugins, current := t.State.Revisions[revision]
	switch {
	case t.Plugins != nil:
		plugins, current = t.Plugins, true
	case current:
	case t.SetsKnown && revision == "":
		plugins, current = t.State.Live, t.LiveKnown
	default:
		return n, nil
	}
	n.Keys = make([]string, 0, len(plugins))
	for _, p := range plugins {
		n.Keys = append(n.Keys, p.KeyID)
	}
	n.WriteKey = delivery.WriteKey(plugins)
	n.WriteKeyNotKnown = !current || !loaded(t, pod) || n.WriteKey == "" && t.State.NotProbed != ""
	return n, plugins
}

// configuredKey is the write key of the current configuration, and whether it is known to have none.
func configuredKey(t *delivery.Snapshot) (key string, none bool) {
	if !t.LiveKnown {
		return "", false
	}
	key = delivery.WriteKey(t.State.Live)
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
func loaded(t *delivery.Snapshot, pod *corev1.Pod) bool {
	since := t.State.LiveSince
	if t.Plugins == nil && delivery.RevisionOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels) != "" || since.IsZero() {
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

// began is when a pod was started on its node. The mirror of a static pod may be created
// again long after.
func began(pod *corev1.Pod) time.Time {
	if at := pod.Status.StartTime; at != nil {
		return at.Time
	}
	return pod.CreationTimestamp.Time
}

// runningSince is when the container of an API server was last started; zero: it does not run. Whether
// it is Ready does not matter: an unhealthy plugin keeps it from that.
func runningSince(pod *corev1.Pod, container string) (at time.Time) {
	served, err := objects.APIServerContainer(&pod.Spec, container)
	for _, s := range pod.Status.ContainerStatuses {
		if err == nil && s.Name == served.Name && s.State.Running != nil {
			at = s.State.Running.StartedAt.Time
		}
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
