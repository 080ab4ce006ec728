package pluginhealthcontroller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// replacePeriod bounds for how long the replacement of an API server by a static pod operator excuses its
// node, from its beginning: an installer's start, an API server's graceful shutdown (up to 135
// seconds on OpenShift) and its successor's start. A kubelet does not update the status of a pod while
// it terminates, so the pod alone does not show that its plugins have stopped before its API server.
const replacePeriod = 5 * time.Minute

// nodeHistory is what is remembered of one node: its API server's pod, and who reports on it. The report
// of a reporter that was deleted counts until it is stale, so its UID is kept as long as the report
// names it.
type nodeHistory struct {
	server    string               // the UID, on its node, of the API server's pod
	started   time.Time            // when its container was, as first seen: each start of a crash loop is another
	since     time.Time            // when the first of its reporters was created; zero: there was none
	writers   []string             // the UIDs of their pods, and of the API server's, which may have a sidecar
	expected  map[string]time.Time // when each plugin was first seen as expected; "": while they are not known
	replacing time.Time            // when the replacement of the API server was first seen; zero: it is not replaced
}

// attend completes a node by what is remembered of it, before, and keeps that. replaced are the UIDs of API
// server pods beside the one that counts, ours are the reporters' pods. A new process leaves a standing
// Unknown as it is: the plugins that it first sees count as expected for long.
func (s *healthSync) attend(in *rollup.Input, before map[string]nodeHistory, n *rollup.Node, pod *corev1.Pod,
	replaced []string, ours []*corev1.Pod, resource *operatorstatus.Status) {
	was, seen := before[n.Name], s.now
	switch stands := in.Previous[contract.PluginsDegraded].Status == operatorstatus.Unknown; {
	case !stands: // any more
		maps.DeleteFunc(was.expected, func(_ string, at time.Time) bool { return at.IsZero() })
	case before == nil:
		seen = time.Time{}
	}
	named := ""
	for i := range resource.Reports {
		if r := &resource.Reports[i]; r.Node == n.Name {
			named = cmp.Or(r.Reporter(), named)
		}
	}
	start := cmp.Or(runningSince(pod, s.target.Container), began(pod))
	a, attended := was.next(pod, start, replaced, ours, named)
	a.expect(n, was.expected, seen)
	if slices.Contains(resource.Nodes, operatorstatus.NodeStatus{Name: n.Name, Replacing: true}) {
		a.replacing = cmp.Or(was.replacing, s.now)
		n.QuietUntil = latest(n.QuietUntil, a.replacing.Add(replacePeriod))
	}
	s.attendance[n.Name] = a
	n.Writers, n.Unattended = a.writers, s.target.Unmanaged && !attended && !objects.Injected(&pod.Spec)
}

// expect sets when the first reports of a node are due. before has since when its plugins were expected,
// seen is since when others are.
func (a *nodeHistory) expect(n *rollup.Node, before map[string]time.Time, seen time.Time) {
	a.expected, n.Due = map[string]time.Time{}, map[string]time.Time{}
	keys := n.Keys
	if keys == nil {
		keys = []string{""}
	}
	for _, key := range keys {
		since, known := before[key]
		if !known {
			since = seen
		}
		a.expected[key] = since
		n.Due[key] = latest(since, latest(a.started, a.since)).Add(rollup.FirstReport)
	}
}

// next is the attendance of a node's API server pod as it is now, whose container was started
// at start. replaced are the UIDs of the pods on its node that it replaces: in a rollout that stops,
// they are the ones that serve, so their reporters count too. ours are the reporters' pods on its
// node, named is the reporter that its report names. attended means that one of ours stands beside
// the pod.
func (a nodeHistory) next(pod *corev1.Pod, start time.Time, replaced []string, ours []*corev1.Pod,
	named string) (next nodeHistory, attended bool) {
	server, _ := objects.PodUID(pod) // without a UID no companion can be beside it
	next = nodeHistory{server: server, started: start, writers: append([]string{server}, replaced...)}
	same := a.server == server
	if same {
		next.since, next.started = a.since, a.started
	}
	for _, o := range ours {
		agent := v1alpha1.Mode(o.Labels[contract.ModeLabel]).ServesNode()
		beside := o.Annotations[contract.BesideAnnotation]
		current := agent || server != "" && beside == server
		if !current && !slices.Contains(replaced, beside) {
			continue
		}
		next.writers = append(next.writers, string(o.UID))
		if !current {
			continue
		}
		ended := o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded // evicted, for example
		attended = attended || o.DeletionTimestamp == nil && !ended
		if created := o.CreationTimestamp.Time; next.since.IsZero() || created.Before(next.since) {
			next.since = created
		}
	}
	if same && named != "" && slices.Contains(a.writers, named) {
		next.writers = append(next.writers, named)
	}
	return next, attended
}

// reporterPods are a target's reporters that are pods of their own.
func reporterPods(target string, own []*unstructured.Unstructured) (ours []*corev1.Pod) {
	for _, o := range own {
		if labels := o.GetLabels(); labels[contract.APIServerLabel] == target && labels[contract.ModeLabel] != "" {
			ours = append(ours, informers.As[corev1.Pod](o))
		}
	}
	return ours
}
