package pluginhealthcontroller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// ofOurs returns a reporter's pod on node a in a mode, for the API server's pod with this UID.
func ofOurs(uid, delivery, beside string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod("a", append(change, named(uid))...)
	p.UID = types.UID(uid)
	p.Labels = map[string]string{contract.APIServerLabel: "api", contract.ModeLabel: delivery}
	p.Annotations = map[string]string{contract.BesideAnnotation: beside}
	return p
}

const serverUID, beforeUID = "11111111-1111-1111-1111-111111111111", "00000000-0000-0000-0000-000000000000"

var companionPod = ofOurs("companion", "CompanionPod", serverUID)
var earlierPod = ofOurs("earlier", "CompanionPod", beforeUID)
var deletedPod = ofOurs("deleted", "CompanionPod", serverUID, terminating)
var evictedPod = ofOurs("evicted", "CompanionPod", serverUID, phase(corev1.PodFailed))
var agentPod = ofOurs("agent", "DaemonSet", "")

// remembered returns the history of an API server's pod with these reporters.
func remembered(server string, writers ...string) nodeHistory {
	return nodeHistory{server: server, writers: writers}
}

func TestReportersOfAnAPIServersPod(t *testing.T) {
	const gone = "gone"
	for name, tt := range map[string]struct {
		was      nodeHistory
		ours     []*corev1.Pod
		named    string // the reporter's UID in the report
		writers  []string
		attended bool
	}{
		"none":                                   {nodeHistory{}, nil, "", nil, false},
		"a companion beside it":                  {nodeHistory{}, []*corev1.Pod{companionPod}, "", []string{"companion"}, true},
		"a companion beside the pod before":      {nodeHistory{}, []*corev1.Pod{earlierPod}, "", nil, false},
		"a companion that is being deleted":      {nodeHistory{}, []*corev1.Pod{deletedPod}, "", []string{"deleted"}, false},
		"a companion that was evicted":           {nodeHistory{}, []*corev1.Pod{evictedPod}, "", []string{"evicted"}, false},
		"an agent":                               {nodeHistory{}, []*corev1.Pod{agentPod}, "", []string{"agent"}, true},
		"both, while one replaces the other":     {nodeHistory{}, []*corev1.Pod{companionPod, agentPod}, "", []string{"agent", "companion"}, true},
		"one was deleted, and its report stands": {remembered(serverUID, serverUID, gone), nil, gone, []string{gone}, false},
		"one was deleted, and its report went":   {remembered(serverUID, serverUID, gone), nil, "other", nil, false},
		"one was deleted with its API server":    {remembered(beforeUID, beforeUID, gone), nil, gone, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := lookOf(withKeys("2"))
			l.was, l.named, l.server = tt.was, tt.named, serverUID
			if attended := l.attend(tt.ours); attended != tt.attended {
				t.Errorf("attended %t, want %t", attended, tt.attended)
			}
			writers := slices.Compact(slices.Sorted(slices.Values(l.writers)))
			if d := cmp.Diff(append([]string{serverUID}, tt.writers...), writers); d != "" {
				t.Error(d)
			}
		})
	}
}

// A static pod's UID on its node is in an annotation of its mirror.
func TestSidecarOfAStaticPodIsKnownByTheUIDOnItsNode(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef"
	mirror := pod("a", func(p *corev1.Pod) {
		p.UID = serverUID
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash, "kubernetes.io/config.hash": hash}
	})
	in := observed(withKeys("2"), []*corev1.Pod{mirror}, abc)
	if d := cmp.Diff([]string{hash}, in.Nodes[0].Writers); d != "" {
		t.Error(d)
	}
}

// looking observes node a of a target several times.
type looking struct {
	*healthSync
	previous  operatorstatus.Condition
	reporting operatorstatus.Condition
	ours      []*corev1.Pod
}

func lookingAt(t *target) *looking { return &looking{healthSync: syncingOf(t, abc)} }

// at returns the input for node a at a time since the first look, with these pods of the API server.
func (l *looking) at(since time.Duration, pods ...*corev1.Pod) rollup.Node {
	l.now, l.attendance = now.Add(since), map[string]nodeHistory{}
	in := rollup.Input{Previous: map[string]operatorstatus.Condition{contract.PluginsDegraded: l.previous,
		contract.HealthReporting: l.reporting}}
	l.expect(&in, byNode(pods), byNode(l.ours))
	l.before = l.attendance
	return in.Nodes[0]
}

func withUID(uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod("a", append(change, named("api-"+uid[:4]))...)
	p.UID = types.UID(uid)
	return p
}

// served returns an API server's pod with a running container. Its start time is in the future, by a wrong clock.
func served(uid, container string) *corev1.Pod {
	return withUID(uid, func(p *corev1.Pod) {
		s := running("api", -400*24*time.Hour)
		s.ContainerID = container
		p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	})
}

// Only a restart that was seen counts, and several restarts in a row are excused once.
func TestStartsThatWereSeenExcuseSilence(t *testing.T) {
	const minute = time.Minute
	type step struct {
		at    time.Duration
		pod   *corev1.Pod
		until time.Duration // since the first look; negative: not excused
	}
	end := ended("api", 0, 0)
	end.ContainerID = "1"
	stopped, other := withUID(serverUID, status(end)), served(serverUID, "1")
	status(running("other", 0))(other)
	for name, steps := range map[string][]step{
		"the first look excuses nothing": {{0, stopped, -1}, {minute, served(serverUID, "2"), 4 * minute}},
		"an end excuses as a start does": {{0, served(serverUID, "1"), -1}, {minute, stopped, 4 * minute}},
		"a container, another pod, and a stranger": {{0, served(serverUID, "1"), -1}, {minute, other, -1},
			{30 * minute, served(beforeUID, "2"), 33 * minute}},
		"a row of restarts": {{0, served(serverUID, "1"), -1}, {10 * minute, served(serverUID, "2"), 13 * minute},
			{14 * minute, served(serverUID, "3"), 15 * minute}, {20 * minute, served(serverUID, "4"), 15 * minute},
			{30 * minute, served(serverUID, "4"), -1}, {31 * minute, served(serverUID, "5"), 34 * minute}},
	} {
		l := lookingAt(withKeys("2"))
		for i, step := range steps {
			want := now.Add(step.until)
			if step.until < 0 {
				want = time.Time{}
			}
			if n := l.at(step.at, step.pod); !n.QuietUntil.Equal(want) {
				t.Errorf("%s: step %d: until %s, want %s", name, i, n.QuietUntil, want)
			}
		}
	}
}

// A missing socket is excused while its API server starts. One that crashes again and again is not excused anew.
func TestSocketOfAnAPIServerThatCrashesIsNotExcusedForLong(t *testing.T) {
	withFixture(t, func(s *fixture) {
		s.begin()
		const excused = 2*time.Minute + rollup.MaxExcuse
		for s.until(2 * time.Minute); s.now() < time.Hour; s.pass(interval) {
			s.restart("a", fmt.Sprint(s.now().Truncate(2*time.Minute)))
			s.report("a", "b")
			e := &s.reports["a"][0]
			e.Status, e.KEKID, e.Reason, e.Detail = contract.Error, "", contract.SocketMissing, "no such file"
			if s.shows(); len(s.written()) > 0 {
				s.showWritten()
			}
			want := "False AsExpected"
			if s.now() > excused+interval {
				want = "True PluginError"
			}
			if got := degraded(s.shown); got != want && (s.now() < excused || s.now() > excused+interval) {
				s.Fatalf("at %s: %s, want %s", s.now(), got, want)
			}
		}
	})
}

func TestReplacementExcusesItsNodeForABoundedTime(t *testing.T) {
	l := lookingAt(withKeys("2"))
	l.previous.Status = operatorstatus.True // with this status the first look excuses nothing
	for i, step := range []struct {
		at        time.Duration
		current   string
		replacing bool
		pod       int
		want      time.Time
	}{
		{0, "7", false, 7, time.Time{}},
		{time.Minute, "7", true, 7, now.Add(6 * time.Minute)},
		{time.Hour, "7", true, 7, now.Add(6 * time.Minute)},  // the replacement is stuck
		{time.Hour, "8", false, 7, now.Add(6 * time.Minute)}, // the watch of pods is behind
		{2 * time.Hour, "8", false, 8, time.Time{}},
		{3 * time.Hour, "9", false, 8, now.Add(3*time.Hour + 5*time.Minute)}, // the pod of revision 9 was not seen yet
		{4 * time.Hour, "", false, 9, time.Time{}},
		{5 * time.Hour, "9", true, 9, now.Add(5*time.Hour + 5*time.Minute)},
	} {
		l.resource.Nodes = []operatorstatus.NodeStatus{{Name: "a", Revision: step.current, Replacing: step.replacing}}
		if got := l.at(step.at, withUID(serverUID, revision(step.pod))).QuietUntil; !got.Equal(step.want) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

func TestNodeThatIsNotReadyIsExcusedForABoundedTime(t *testing.T) {
	l := lookingAt(withKeys("2"))
	for i, step := range []struct {
		at    time.Duration
		ready bool
		want  time.Duration
	}{{0, false, downPeriod}, {time.Hour, false, downPeriod}, {2 * time.Hour, true, 0}, {3 * time.Hour, false, 3*time.Hour + downPeriod}} {
		l.node = func(string) (informers.Node, bool) { return informers.Node{Name: "a", Ready: step.ready}, true }
		if n := l.at(step.at, withUID(serverUID)); !step.ready && !n.DownUntil.Equal(now.Add(step.want)) {
			t.Errorf("step %d: %s, want %s", i, n.DownUntil, now.Add(step.want))
		}
	}
}

// A restart of the operator does not renew an excuse that has ended: the conditions show that it has.
func TestExcuseThatEndedBeforeThisProcessStaysEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		begins, ended func(*looking)
		until         func(rollup.Node) time.Time
		period        time.Duration
	}{
		"its Node is not Ready": {
			func(l *looking) {
				l.node = func(string) (informers.Node, bool) { return informers.Node{Name: "a"}, true }
			},
			func(l *looking) { l.previous.Status = operatorstatus.Unknown },
			func(n rollup.Node) time.Time { return n.DownUntil }, downPeriod},
		"it is being replaced": {
			func(l *looking) { l.resource.Nodes = []operatorstatus.NodeStatus{{Name: "a", Replacing: true}} },
			func(l *looking) { l.previous.Status = operatorstatus.True },
			func(n rollup.Node) time.Time { return n.QuietUntil }, replacePeriod},
		"it has two pods": {func(*looking) {},
			func(l *looking) { l.reporting.Reason = contract.SeveralPods },
			func(n rollup.Node) time.Time { return n.PodsDue }, rollup.FirstReport},
	} {
		for _, ended := range []bool{false, true} {
			l, want := lookingAt(withKeys("2")), now.Add(tt.period)
			tt.begins(l)
			if ended {
				tt.ended(l)
				want = time.Time{}.Add(tt.period)
			}
			for _, at := range []time.Duration{0, time.Minute} {
				if got := tt.until(l.at(at, withUID(serverUID), withUID(beforeUID))); !got.Equal(want) {
					t.Errorf("%s, had ended: %v, after %s: until %s, want %s", name, ended, at, got, want)
				}
			}
		}
	}
}

// A first report is due 5 minutes after the API server's pod and its plugin have both been seen.
func TestFirstReportIsDue(t *testing.T) {
	moved := withKeys("2")
	moved.State.Live[0].Endpoint = "unix:///elsewhere.sock"
	for name, tt := range map[string]struct {
		later  func(l *looking) *corev1.Pod // the state an hour after the first look
		before string                       // the status of KMSPluginsDegraded
		want   time.Duration                // since the first look
	}{
		"all as at the first look":          {func(*looking) *corev1.Pod { return withUID(serverUID) }, operatorstatus.False, 0},
		"what an earlier process had found": {func(*looking) *corev1.Pod { return withUID(serverUID) }, operatorstatus.Unknown, -1},
		"also when another plugin has become unhealthy": {func(l *looking) *corev1.Pod {
			l.previous.Status = operatorstatus.True
			return withUID(serverUID)
		}, operatorstatus.Unknown, -1},
		"another pod":                         {func(*looking) *corev1.Pod { return withUID(beforeUID) }, operatorstatus.False, time.Hour},
		"a reporter":                          {func(l *looking) *corev1.Pod { l.ours = []*corev1.Pod{companionPod}; return withUID(serverUID) }, operatorstatus.False, 0},
		"its plugin has its socket elsewhere": {func(l *looking) *corev1.Pod { l.target = &moved.Snapshot; return withUID(serverUID) }, operatorstatus.False, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			l := lookingAt(withKeys("2"))
			l.previous.Status = tt.before
			l.at(0, withUID(serverUID))
			want := now.Add(tt.want + rollup.FirstReport)
			if tt.want < 0 {
				want = time.Time{}.Add(rollup.FirstReport)
			}
			if got := l.at(time.Hour, tt.later(l)).Due; !got.Equal(want) {
				t.Errorf("due %s, want %s", got, want)
			}
		})
	}
}

// Of two pods on a node, the one that the delivery serves counts. Reports of the other one do not count.
func TestOfTwoPodsOnANodeOneCounts(t *testing.T) {
	old := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.AddDate(0, 0, -30)) } // created by a wrong clock
	l := lookingAt(withKeys("2"))
	l.ours = []*corev1.Pod{companionPod, earlierPod}
	if n := l.at(0, withUID(serverUID)); n.Pods != nil || n.Writers[0] != serverUID {
		t.Errorf("one pod: %+v", n)
	}
	l.target.Served = map[string]string{"a": beforeUID}
	n := l.at(time.Minute, withUID(serverUID), withUID(beforeUID, old))
	if got := strings.Join(n.Writers, " "); got != beforeUID+" earlier "+serverUID+" companion" {
		t.Errorf("before one of its own has reported: %s", got)
	}
	l.resource.Reports = []operatorstatus.Report{{Node: "a", Entries: []contract.Entry{{KeyID: "2", Reporter: "earlier"}}}}
	l.at(2*time.Minute, withUID(serverUID), withUID(beforeUID, old))
	l.resource.Reports[0].Entries[0].Reporter = "companion" // the first pod's companion still reports
	n = l.at(3*time.Minute, withUID(serverUID), withUID(beforeUID, old))
	if got := strings.Join(n.Writers, " "); got != beforeUID+" earlier" || !n.PodsDue.Equal(now.Add(time.Minute+rollup.FirstReport)) ||
		strings.Join(n.Pods, " ") != "ns/api-0000 ns/api-1111" || !n.PodSeen.Equal(now.Add(time.Minute)) {
		t.Errorf("two pods: %+v", n)
	}
	if n := l.at(time.Hour, withUID(serverUID), withUID(beforeUID, old, terminating)); n.Pods != nil || n.Writers[0] != serverUID {
		t.Errorf("the second goes: %+v", n)
	}
	for served, want := range map[string]string{"": serverUID, serverUID: serverUID, beforeUID: beforeUID, "gone": serverUID} {
		first := lookingAt(withKeys("2").but(func(p *delivery.Snapshot) { p.Served = map[string]string{"a": served} }))
		if n := first.at(0, withUID(serverUID), withUID(beforeUID, old)); n.Writers[0] != want || !n.PodSeen.IsZero() {
			t.Errorf("two pods at the first look, and %q is served: %+v, want %s", served, n, want)
		}
	}
}

func TestAPIServerThatDoesNotEncrypt(t *testing.T) {
	running := func(command ...string) *corev1.Pod {
		return withUID(serverUID, func(p *corev1.Pod) { p.Spec.Containers[0].Command = command })
	}
	for name, tt := range map[string]struct {
		command []string
		want    bool
	}{
		"with the flag":                 {[]string{"kube-apiserver", "--encryption-provider-config=/etc/enc.yaml"}, false},
		"with the flag, in two words":   {[]string{"/usr/local/bin/kube-apiserver", "--encryption-provider-config", "/etc/enc.yaml"}, false},
		"with underscores and one dash": {[]string{"kube-apiserver", "-encryption_provider_config=x"}, false},
		"without it":                    {[]string{"/usr/local/bin/kube-apiserver", "--etcd-servers=x", "--encryption-provider-config-automatic-reload"}, true},
		"a file of flags":               {[]string{"kube-apiserver", "--openshift-config=x"}, false},
		"another file of flags":         {[]string{"kube-apiserver", "--config", "x"}, false},
		"by Kubernetes' runner":         {[]string{"/go-runner", "--log-file=x", "/usr/local/bin/kube-apiserver", "--etcd-servers=x"}, true},
		"by it, with the flag":          {[]string{"/go-runner", "kube-apiserver", "--encryption-provider-config=x"}, false},
		"a shell":                       {[]string{"/bin/sh", "-c", "exec kube-apiserver"}, false},
		"another program":               {[]string{"hyperkube", "kube-apiserver"}, false},
		"the image's own command":       {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			has := func(n rollup.Node) bool {
				return slices.ContainsFunc(n.Faults, func(f rollup.Finding) bool { return f.Reason == contract.EncryptionNotConfigured })
			}
			l := lookingAt(withKeys("2").but(func(t *delivery.Snapshot) { t.Plugins = plugins("2") }))
			if n := l.at(0, running(tt.command...)); has(n) || n.WriteKeyNotKnown != tt.want {
				t.Errorf("at first: %+v", n)
			}
			if n := l.at(rollup.FirstReport-1, running(tt.command...)); has(n) {
				t.Errorf("too early: %+v", n)
			}
			if n := l.at(rollup.FirstReport, running(tt.command...)); has(n) != tt.want {
				t.Errorf("got %t, want %t", has(n), tt.want)
			}
			l = lookingAt(withKeys("2")) // the plugins come from a Secret
			l.at(0, running(tt.command...))
			if n := l.at(time.Hour, running(tt.command...)); has(n) {
				t.Errorf("by a Secret: %+v", n)
			}
			l = lookingAt(withKeys("2").but(func(t *delivery.Snapshot) { t.Plugins = plugins("2") }))
			l.previous.Reason = contract.EncryptionNotConfigured // found by an earlier process
			if n := l.at(0, running(tt.command...)); has(n) != tt.want {
				t.Errorf("in a new process: %+v", n)
			}
		})
	}
}
