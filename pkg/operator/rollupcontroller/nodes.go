package rollupcontroller

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/operator/watch"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/pkg/sidecar"
)

var (
	podResource  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodeResource = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// manyNodes is from how many nodes on all Nodes are watched rather than each by
// its name: a list of all costs the memory of all, and a cluster has few nodes
// with API servers.
const manyNodes = 16

// node is what matters of a Node.
type node struct {
	name  string
	made  time.Time
	ready bool
}

func readNode(o *unstructured.Unstructured) node {
	n := node{name: o.GetName(), made: o.GetCreationTimestamp().Time}
	conditions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		fields, _ := c.(map[string]any)
		if fields["type"] == string(corev1.NodeReady) {
			n.ready = fields["status"] == string(corev1.ConditionTrue)
		}
	}
	return n
}

// nodes are those that should report, and when each Node that exists was made.
// known is false while a source has not told yet.
func (c *Controller) nodes(ctx context.Context, t *Target, resource *rollup.Resource, now time.Time) (expected []rollup.Node, made map[string]time.Time, known bool) {
	var pods []*corev1.Pod
	if !t.NamespaceMissing {
		source := watch.Follow(ctx, c.view, watch.Selection{Resource: podResource, Namespace: t.Namespace, Labels: labels.SelectorFromSet(t.PodSelector).String()}, target.ReadPod, nil)
		if !source.Known() {
			return nil, nil, false
		}
		pods = slices.DeleteFunc(source.All(), func(p *corev1.Pod) bool { return p == nil })
	}
	ours := watch.Follow(ctx, c.view, watch.Selection{Resource: podResource, Namespace: c.Namespace, Labels: render.Ours}, watch.Whole, nil)
	if !ours.Known() {
		return nil, nil, false
	}
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Spec.NodeName] = true
	}
	for i := range resource.Reports {
		names[resource.Reports[i].Node] = true
	}
	delete(names, "")
	all, known := c.named(ctx, names)
	if !known {
		return nil, nil, false
	}
	made = make(map[string]time.Time, len(all))
	for name, n := range all {
		made[name] = n.made
	}
	return expect(t, c.Namespace, pods, c.reporters(t.Name, ours.All()), all, now), made, true
}

// reporters are a target's that are pods of their own, by node. While one delivery
// takes the place of another there are two on a node.
func (c *Controller) reporters(name string, ours []*unstructured.Unstructured) map[string]*corev1.Pod {
	newest := map[string]*corev1.Pod{}
	for _, o := range ours {
		if l := o.GetLabels(); l[render.TargetLabel] != name || l[render.DeliveryLabel] == "" || o.GetDeletionTimestamp() != nil {
			continue
		}
		if pod := c.decode(o); pod != nil && newer(pod, newest[pod.Spec.NodeName]) {
			newest[pod.Spec.NodeName] = pod
		}
	}
	return newest
}

// newer says whether a pod came after another, nil: after none.
func newer(pod, other *corev1.Pod) bool {
	return other == nil || other.CreationTimestamp.Time.Before(pod.CreationTimestamp.Time) ||
		other.CreationTimestamp.Equal(&pod.CreationTimestamp) && other.Name < pod.Name
}

// named are those of the Nodes that exist.
func (c *Controller) named(ctx context.Context, names map[string]bool) (map[string]node, bool) {
	found := map[string]node{}
	if len(names) > manyNodes {
		source := watch.Follow(ctx, c.view, watch.Selection{Resource: nodeResource}, readNode, nil)
		for _, n := range source.All() {
			found[n.name] = n
		}
		return found, source.Known()
	}
	known := true
	for _, name := range slices.Sorted(maps.Keys(names)) {
		source := watch.Follow(ctx, c.view, watch.Selection{Resource: nodeResource, Name: name}, readNode, nil)
		known = known && source.Known()
		if n, exists := source.Get("", name); exists {
			found[name] = n
		}
	}
	return found, known
}

// expect returns the nodes that should report: those with a pod of the target
// that is placed, is not about to go, and has plugins. reporters are the pods
// beside, by node.
func expect(t *Target, namespace string, pods []*corev1.Pod, reporters map[string]*corev1.Pod, nodes map[string]node, now time.Time) []rollup.Node {
	newest := map[string]*corev1.Pod{}
	for _, pod := range pods {
		name := pod.Spec.NodeName
		if !target.Alive(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if newer(pod, newest[name]) {
			newest[name] = pod
		}
	}
	expected := make([]rollup.Node, 0, len(newest))
	for name, pod := range newest {
		its, exists := nodes[name]
		if !exists {
			continue
		}
		n := rollup.Node{Name: name, Ready: its.ready, PodSince: began(pod)}
		plugins := t.State.PluginsOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels)
		if t.Known && !t.Pending[target.RevisionOf(t.EncryptionConfig.Secret, &pod.Spec, pod.Labels)] {
			if len(plugins) == 0 {
				continue
			}
			n.Keys = make([]string, 0, len(plugins))
			for _, p := range plugins {
				n.Keys = append(n.Keys, p.KeyID)
			}
		}
		n.QuietUntil, n.Leaving = quiet(pod, t.Container)
		v := beside{tool: t.Tool, pod: pod, container: t.Container, plugins: plugins, reporter: reporters[name], namespace: namespace}
		n.Faults, n.Look = v.faults(now), v.look()
		expected = append(expected, n)
	}
	slices.SortFunc(expected, func(a, b rollup.Node) int { return strings.Compare(a.Name, b.Name) })
	return expected
}

// began is when a pod's life on its node began. The mirror of a static pod may be
// made again long after.
func began(pod *corev1.Pod) time.Time {
	if at := pod.Status.StartTime; at != nil {
		return at.Time
	}
	return pod.CreationTimestamp.Time
}

// apiServer is the name of the API server's container: the one that is configured,
// else the pod's first but our own, as the sidecar has it.
func apiServer(pod *corev1.Pod, configured string) string {
	if configured != "" {
		return configured
	}
	for i := range pod.Spec.Containers {
		if name := pod.Spec.Containers[i].Name; name != sidecar.ContainerName {
			return name
		}
	}
	return ""
}

// quiet is until when a pod's node may be silent, since its API server or one of its
// plugins came or went; and whether the API server went in order.
func quiet(pod *corev1.Pod, container string) (until time.Time, leaving bool) {
	last := began(pod)
	container = apiServer(pod, container)
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == sidecar.ContainerName {
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
