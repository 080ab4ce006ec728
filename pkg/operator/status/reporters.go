package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// attendance is what is remembered of the reporters of one API server's pod. The report of a
// reporter that was deleted counts until it is stale, so its UID is kept as long as the
// report names it.
type attendance struct {
	server  string    // the UID, on its node, of the API server's pod
	started time.Time // when its container was, as first seen: each start of a crash loop is another
	since   time.Time // when the first of its reporters was created; zero: there was none
	writers []string  // the UIDs of their pods, and of the API server's, which may have a sidecar
}

// attend completes the nodes by what is known of their reporters. others are API server pods
// beside those that count, ours are the reporters' pods.
func (s *syncing) attend(nodes []rollup.Node, pods map[string]*corev1.Pod, others []*corev1.Pod,
	ours map[string][]*corev1.Pod, resource *operatorcr.Status) {
	t := s.target
	replaced := map[string][]string{} // the UIDs of the others that are not being deleted
	for _, pod := range others {
		if uid, _ := objects.PodUID(pod); uid != "" && pod.DeletionTimestamp == nil {
			replaced[pod.Spec.NodeName] = append(replaced[pod.Spec.NodeName], uid)
		}
	}
	named := map[string]string{} // the reporters that reports name
	for i := range resource.Reports {
		if by := resource.Reports[i].Reporter(); by != "" {
			named[resource.Reports[i].Node] = by
		}
	}
	before := s.attendance
	s.attendance = make(map[string]attendance, len(nodes))
	for i := range nodes {
		n, pod := &nodes[i], pods[nodes[i].Name]
		a, attended := before[n.Name].next(pod, started(pod, t.Container), replaced[n.Name], ours[n.Name], named[n.Name])
		s.attendance[n.Name] = a
		n.Writers, n.ReporterCreated = a.writers, a.since
		n.Started = a.started
		n.Unattended = t.Unmanaged && !attended && !objects.Injected(&pod.Spec)
	}
}

// next is the attendance of a node's API server pod as it is now, whose container was started
// at start. replaced are the UIDs of the pods on its node that it replaces: in a rollout that stops,
// they are the ones that serve, so their reporters count too. ours are the reporters' pods on its
// node, named is the reporter that its report names. attended means that one of ours stands beside
// the pod.
func (a attendance) next(pod *corev1.Pod, start time.Time, replaced []string, ours []*corev1.Pod,
	named string) (next attendance, attended bool) {
	server, _ := objects.PodUID(pod) // without a UID no companion can be beside it
	next.started = start
	if a.server == server {
		next.since, next.started = a.since, a.started
	}
	next.server, next.writers = server, append([]string{server}, replaced...)
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
	if a.server == server && named != "" && slices.Contains(a.writers, named) && !slices.Contains(next.writers, named) {
		next.writers = append(next.writers, named)
	}
	slices.Sort(next.writers)
	return next, attended
}

// reporterPods are a target's reporters that are pods of their own, by node.
func reporterPods(target string, own []*unstructured.Unstructured) map[string][]*corev1.Pod {
	ours := map[string][]*corev1.Pod{}
	for _, o := range own {
		if labels := o.GetLabels(); labels[contract.APIServerLabel] != target || labels[contract.ModeLabel] == "" {
			continue
		}
		if pod := source.As[corev1.Pod](o); pod != nil {
			ours[pod.Spec.NodeName] = append(ours[pod.Spec.NodeName], pod)
		}
	}
	return ours
}

// newest is the newest pod that is not being deleted; nil: there is none. While one delivery replaces
// another there are two on a node.
func newest(pods []*corev1.Pod) (best *corev1.Pod) {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && newer(pod, best) {
			best = pod
		}
	}
	return best
}

// started is when the container of an API server was last started; its pod, where it was not
// yet. Whether it is Ready does not matter: an unhealthy plugin keeps it from that.
func started(pod *corev1.Pod, container string) time.Time {
	container = apiServer(pod, container)
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if s.Name == container && s.State.Running != nil {
			return s.State.Running.StartedAt.Time
		}
	}
	return began(pod)
}
