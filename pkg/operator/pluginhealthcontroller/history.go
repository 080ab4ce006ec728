package pluginhealthcontroller

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const (
	// replacePeriod bounds the excuse of an API server that a static pod operator replaces: an installer's start, a
	// graceful shutdown (up to 135 seconds on OpenShift) and the successor's start. The pod does not show that its plugins
	// have stopped first: a kubelet does not update its status while it terminates.
	replacePeriod = 5 * time.Minute
	// rowEnds is how long without a restart ends a row of restarts. A row excuses for rollup.MaxExcuse in all.
	rowEnds = 10 * time.Minute
	// downPeriod is for how long a Node that is not Ready excuses its reports.
	downPeriod = 30 * time.Minute
)

// nodeHistory is what is remembered of one node: its API server's pod, and who reports on it. A deleted reporter's UID
// is kept as long as the report names it, since that counts until it is stale.
type nodeHistory struct {
	server  string               // the UID, on its node, of the API server's pod that counts
	writers []string             // the UIDs of its reporters' pods, and of itself: it may have a sidecar
	taken   bool                 // one of them has reported; until then those of its other pods count, too
	began   map[string]time.Time // since when that is so which since was asked about, while it is
	loops   map[string]bool      // containers that the kubelet waited to start, until they ran for long enough
}

// look is one look at a node.
type look struct {
	*healthSync
	was   nodeHistory
	first bool // the process's first look at the target
	// The current KMSPluginsDegraded and KMSHealthReporting.
	degraded, reporting operatorstatus.Condition

	named  string // the reporter that the node's report names
	listed operatorstatus.NodeStatus
	others []string // the UIDs of the API server's other pods that are not being deleted
	nodeHistory
}

func (s *healthSync) lookAt(node string, in *rollup.Input) *look {
	l := &look{healthSync: s, was: s.before[node], first: s.before == nil}
	l.degraded, l.reporting = in.Previous[contract.PluginsDegraded], in.Previous[contract.HealthReporting]
	l.began = map[string]time.Time{}
	for i := range s.resource.Reports {
		if r := &s.resource.Reports[i]; r.Node == node {
			l.named = cmp.Or(r.Reporter(), l.named)
		}
	}
	for _, listed := range s.resource.Nodes {
		if listed.Name == node {
			l.listed = listed
		}
	}
	return l
}

// since returns when this process saw first what is so now; zero: an earlier process had found it.
func (l *look) since(what string, found bool) time.Time {
	began, had := l.was.began[what]
	if !had && !(l.first && found) {
		began = l.now
	}
	l.began[what] = began
	return began
}

// choose returns the pod on a node that counts (nil: none), and the others that are not being deleted. It is the one
// that the delivery serves, else the latest.
func (l *look) choose(pods []*corev1.Pod) (chosen *corev1.Pod, second []*corev1.Pod) {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			l.podSeen(pod)
			second = append(second, pod)
		}
	}
	at := slices.IndexFunc(second, func(p *corev1.Pod) bool {
		uid, served := l.target.Served[p.Spec.NodeName]
		return served && uid == podUID(p)
	})
	if at < 0 {
		at = slices.Index(second, l.latest(second))
	}
	if at < 0 {
		return nil, nil
	}
	chosen = second[at]
	second = slices.Delete(second, at, at+1)
	for _, pod := range second {
		l.others = append(l.others, podUID(pod))
	}
	return chosen, second
}

// latest returns the pod that was seen last, of those seen together the last by name, and none that is being deleted. A
// creationTimestamp is by the clock of the API server that created the pod, and tells nothing here.
func (l *look) latest(pods []*corev1.Pod) (best *corev1.Pod) {
	var last time.Time
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		seen := l.podSeen(pod)
		if best == nil || cmp.Or(seen.Compare(last), strings.Compare(pod.Name, best.Name)) > 0 {
			best, last = pod, seen
		}
	}
	return best
}

// podSeen returns when a pod was first seen; zero: at the process's first look.
func (l *look) podSeen(pod *corev1.Pod) time.Time { return l.since("pod "+podUID(pod), true) }

// podUID returns the UID of a pod on its node, else the UID of its object.
func podUID(pod *corev1.Pod) string {
	if uid, err := objects.PodUID(pod); err == nil && uid != "" {
		return uid
	}
	return string(pod.UID)
}

// complete adds what is remembered of a node, and remembers what is seen. ours are the reporters' pods on it.
func (l *look) complete(n *rollup.Node, b *beside, ours []*corev1.Pod) {
	l.server, _ = objects.PodUID(b.pod) // no companion belongs to a pod without a UID
	n.PodSeen = l.podSeen(b.pod)
	attended := l.attend(ours)
	n.Writers, n.Unattended = l.writers, l.target.Unmanaged && !attended && !objects.Injected(&b.pod.Spec)
	// The first reports are due anew when its plugins change. If KMSPluginsDegraded is Unknown at the process's first
	// look, it stays so: the plugins seen then count as overdue.
	since := l.since(fmt.Sprint("plugins ", n.Sockets), l.degraded.Status == operatorstatus.Unknown)
	n.Due = rollup.Latest(since, n.PodSeen).Add(rollup.FirstReport)
	l.excuse(n, b)
	n.Faults = l.faults(b)
	if l.target.Plugins != nil && b.unencrypted() {
		found := l.degraded.Reason == contract.EncryptionNotConfigured
		if due := l.since("not encrypted", found).Add(rollup.FirstReport); l.now.Before(due) {
			n.WriteKeyNotKnown = true
			l.requeue(due)
		} else {
			text := fmt.Sprintf("pod %s/%s runs kube-apiserver without --encryption-provider-config", b.pod.Namespace,
				b.pod.Name)
			n.Faults = append(n.Faults, rollup.Finding{Reason: contract.EncryptionNotConfigured, Node: n.Name, Text: text})
		}
	}
}

// attend finds the reporters whose reports are about the API server's pod. attended means that the pod has one. If a
// rollout stops, the previous pods serve on, and their reporters count until a reporter of the new pod has reported.
func (l *look) attend(ours []*corev1.Pod) (attended bool) {
	same := l.was.server == l.server
	l.writers = []string{l.server}
	for _, o := range ours {
		if !isAgent(o) && (l.server == "" || o.Annotations[contract.BesideAnnotation] != l.server) {
			continue
		}
		l.writers = append(l.writers, string(o.UID))
		ended := o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded // evicted, for example
		attended = attended || o.DeletionTimestamp == nil && !ended
	}
	l.taken = same && l.was.taken || l.named != "" && slices.Contains(l.writers, l.named)
	if same && l.named != "" && slices.Contains(l.was.writers, l.named) && !slices.Contains(l.others, l.named) {
		l.writers = append(l.writers, l.named)
	}
	if !l.taken {
		l.writers = append(l.writers, l.others...)
		for _, o := range ours {
			if slices.Contains(l.others, o.Annotations[contract.BesideAnnotation]) {
				l.writers = append(l.writers, string(o.UID))
			}
		}
	}
	return attended
}

// excuse sets until when a silence of the node, or a missing socket, is excused.
func (l *look) excuse(n *rollup.Node, b *beside) {
	if restart := l.since("starts "+b.starts(), true); l.now.Before(restart.Add(rowEnds)) {
		l.requeue(restart.Add(rowEnds))
		n.QuietUntil = restart.Add(rollup.QuietPeriod)
		if ends := l.since("row of restarts", false).Add(rollup.MaxExcuse); ends.Before(n.QuietUntil) {
			n.QuietUntil = ends
		}
	}
	if l.replaced(b.pod) {
		since := l.since("replaced", l.degraded.Status == operatorstatus.True)
		n.QuietUntil = rollup.Latest(n.QuietUntil, since.Add(replacePeriod))
	}
	if !n.Ready {
		n.DownUntil = l.since("not Ready", l.degraded.Status == operatorstatus.Unknown).Add(downPeriod)
	}
}

// replaced reports whether a static pod operator lists the pod as being replaced, or with another revision than it
// shows: after an outage the watch of that list may recover half a minute before the watch of pods.
func (l *look) replaced(pod *corev1.Pod) bool {
	shown := pod.Labels[delivery.RevisionLabel]
	return l.listed.Replacing || shown != "" && l.listed.Revision != "" && shown != l.listed.Revision
}

// reporterPods returns a target's reporters that have their own pods.
func reporterPods(target string, own []informers.Managed) (ours []*corev1.Pod) {
	for _, o := range own {
		if o.APIServer == target && o.Pod.Labels[contract.ModeLabel] != "" {
			ours = append(ours, o.Pod)
		}
	}
	return ours
}

// starts returns a text that changes with each start and end of the API server's container and its plugins'.
func (b *beside) starts() string {
	text := []any{podUID(b.pod)}
	for _, s := range statuses(b.pod) {
		if s.Name == b.served || slices.Contains(b.names, s.Name) {
			text = append(text, s.Name, s.ContainerID, s.State.Running != nil)
		}
	}
	return fmt.Sprintln(text...)
}

// unencrypted reports whether the pod's container runs kube-apiserver, itself or by the runner of Kubernetes' images,
// without an encryption config: no flag for it, and none for a file that may have it.
func (b *beside) unencrypted() bool {
	for _, c := range b.pod.Spec.Containers {
		line := slices.Concat(c.Command, c.Args)
		at := slices.IndexFunc(line, func(word string) bool { return path.Base(word) == "kube-apiserver" })
		if c.Name != b.served || at < 0 || at > 0 && path.Base(line[0]) != "go-runner" {
			continue
		}
		return !slices.ContainsFunc(line[at+1:], func(argument string) bool {
			name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
			return slices.Contains([]string{"encryption-provider-config", "config", "openshift-config"},
				strings.ReplaceAll(name, "_", "-"))
		})
	}
	return false
}
