package pluginhealthcontroller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// ofOurs is a reporter's pod on node a, created some time ago.
func ofOurs(uid, delivery, beside string, age time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod("a", append(change, named(uid), aged(age))...)
	p.UID = types.UID(uid)
	p.Labels = map[string]string{contract.APIServerLabel: "api", contract.ModeLabel: delivery}
	p.Annotations = map[string]string{contract.BesideAnnotation: beside}
	return p
}

const serverUID, beforeUID = "11111111-1111-1111-1111-111111111111", "00000000-0000-0000-0000-000000000000"

var companionPod = ofOurs("companion", "CompanionPod", serverUID, time.Hour)
var earlierPod = ofOurs("earlier", "CompanionPod", beforeUID, 2*time.Hour)
var deletedPod = ofOurs("deleted", "CompanionPod", serverUID, 2*time.Hour, terminating)
var evictedPod = ofOurs("evicted", "CompanionPod", serverUID, time.Hour,
										func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
var lastStart, firstStart = ago(time.Second).Time, ago(time.Minute).Time // of its container; first: as first seen
var agentPod = ofOurs("agent", "DaemonSet", "", 3*time.Hour)

// remembered is the attendance of a pod, the first of whose reporters was created some time ago.
func remembered(server string, since time.Duration, writers ...string) nodeHistory {
	return nodeHistory{server: server, started: firstStart, since: ago(since).Time, writers: writers}
}

var attendances = []struct {
	name     string
	was      nodeHistory
	replaced []string
	ours     []*corev1.Pod
	named    string // by the report
	writers  []string
	since    time.Duration // ago; zero: never
	attended bool
}{
	{"none", nodeHistory{}, nil, nil, "", []string{serverUID}, 0, false},
	{"a companion beside it", nodeHistory{}, nil, []*corev1.Pod{companionPod}, "",
		[]string{serverUID, "companion"}, time.Hour, true},
	{"a companion beside the pod before", nodeHistory{}, nil, []*corev1.Pod{earlierPod}, "", []string{serverUID},
		0, false},
	{"a companion beside the pod that it replaces", nodeHistory{}, []string{beforeUID}, []*corev1.Pod{earlierPod},
		"", []string{beforeUID, serverUID, "earlier"}, 0, false},
	{"a sidecar of the pod that it replaces", nodeHistory{}, []string{beforeUID}, nil, "", []string{beforeUID, serverUID},
		0,
		false},
	{"a companion that is being deleted", nodeHistory{}, nil, []*corev1.Pod{deletedPod}, "",
		[]string{serverUID, "deleted"}, 2 * time.Hour, false},
	{"a companion that was evicted", nodeHistory{}, nil, []*corev1.Pod{evictedPod}, "",
		[]string{serverUID, "evicted"}, time.Hour, false},
	{"an agent", nodeHistory{}, nil, []*corev1.Pod{agentPod}, "", []string{serverUID, "agent"}, 3 * time.Hour,
		true},
	{"both, while one delivery replaces another", nodeHistory{}, nil, []*corev1.Pod{companionPod, agentPod}, "",
		[]string{serverUID, "agent", "companion"}, 3 * time.Hour, true},
	{"one that was deleted, and whose report stands", remembered(serverUID, time.Minute, serverUID, "gone"), nil, nil,
		"gone", []string{serverUID, "gone"}, time.Minute, false},
	{"one that was deleted, and whose report was replaced", remembered(serverUID, time.Minute, serverUID, "gone"), nil,
		nil, "other", []string{serverUID}, time.Minute, false},
	{"one that was deleted with its API server's pod", remembered(beforeUID, time.Hour, beforeUID, "gone"), nil, nil,
		"gone", []string{serverUID}, 0, false},
	{"created again and again: the first counts", remembered(serverUID, 2*time.Hour, serverUID), nil,
		[]*corev1.Pod{companionPod}, "", []string{serverUID, "companion"}, 2 * time.Hour, true},
}

func TestReportersOfAnAPIServersPod(t *testing.T) {
	for _, tt := range attendances {
		t.Run(tt.name, func(t *testing.T) {
			got, attended := tt.was.next(pod("a", func(p *corev1.Pod) { p.UID = serverUID }), lastStart, tt.replaced, tt.ours,
				tt.named)
			if diff := cmp.Diff(tt.writers, slices.Compact(slices.Sorted(slices.Values(got.writers)))); diff != "" || got.server != serverUID || attended != tt.attended {
				t.Errorf("%+v, attended %v\n%s", got, attended, diff)
			}
			want := time.Time{}
			if tt.since > 0 {
				want = ago(tt.since).Time
			}
			if !got.since.Equal(want) {
				t.Errorf("since %s, want %s", got.since, want)
			}
			want = lastStart
			if tt.was.server == serverUID { // its container may lastStart again and again
				want = firstStart
			}
			if !got.started.Equal(want) {
				t.Errorf("started %s, want %s", got.started, want)
			}
		})
	}
}

// A static pod's UID on its node is in an annotation of its mirror.
func TestSidecarOfAStaticPodIsKnownByTheUIDOnItsNode(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef"
	got, _ := nodeHistory{}.next(pod("a", func(p *corev1.Pod) {
		p.UID = "11111111-1111-1111-1111-111111111111"
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash, "kubernetes.io/config.hash": hash}
	}), time.Time{}, nil, nil, "")
	if diff := cmp.Diff([]string{hash}, got.writers); diff != "" {
		t.Error(diff)
	}
}

func TestAPIServerRunsWhetherReadyOrNot(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want time.Time
	}{
		"running":                  {pod("a", status(running("api", time.Minute))), ago(time.Minute).Time},
		"a plugin, and not it":     {pod("a", status(running("kms", time.Minute))), time.Time{}},
		"not started yet":          {pod("a", status(waiting("api", "PodInitializing"))), time.Time{}},
		"waiting to start again":   {pod("a", status(after(waiting("api", "CrashLoopBackOff"), 3, 1, ""))), time.Time{}},
		"of a mirror created late": {pod("a", aged(time.Second), status(running("api", time.Minute))), ago(time.Minute).Time},
	} {
		if got := runningSince(tt.pod, "api"); !got.Equal(tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// A first report is due 5 minutes after the latest of the start of the API server, the creation of its
// reporter, and the first time that its plugin was seen as expected.
func TestFirstReportIsDue(t *testing.T) {
	for name, tt := range map[string]struct {
		started, created, seen time.Duration // ago; zero: not
		want                   time.Duration // since that time of the latest
	}{
		"the API server was just started": {time.Second, time.Hour, time.Hour, time.Second},
		"its reporter was just created":   {time.Hour, time.Second, time.Hour, time.Second},
		"just seen as expected":           {time.Hour, time.Hour, time.Second, time.Second},
		"without a reporter":              {time.Hour, 0, 2 * time.Hour, time.Hour},
		"by an earlier process":           {time.Hour, 2 * time.Hour, 0, time.Hour},
	} {
		at := func(d time.Duration) time.Time {
			if d == 0 {
				return time.Time{}
			}
			return ago(d).Time
		}
		a := nodeHistory{started: at(tt.started), since: at(tt.created)}
		for _, keys := range [][]string{{"2", "1"}, nil, {}} {
			n := rollup.Node{Keys: keys}
			a.expect(&n, nil, at(tt.seen))
			want := map[string]time.Time{}
			for _, key := range keys {
				want[key] = ago(tt.want).Add(rollup.FirstReport)
			}
			if keys == nil {
				want[""] = ago(tt.want).Add(rollup.FirstReport)
			}
			if diff := cmp.Diff(want, n.Due); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	// What was seen before counts from then on.
	before := map[string]time.Time{"2": ago(time.Minute).Time, "3": ago(time.Minute).Time}
	n, a := rollup.Node{Keys: []string{"2", "1"}}, nodeHistory{started: ago(time.Hour).Time}
	a.expect(&n, before, now)
	want := map[string]time.Time{"2": ago(time.Minute).Time, "1": now}
	if diff := cmp.Diff(want, a.expected); diff != "" {
		t.Error(diff)
	}
}

// attendedAt is node a after a sync at a time.
func attendedAt(s *healthSync, at time.Duration, previous string, replacing bool) rollup.Node {
	s.now = now.Add(at)
	p := pod("a", func(p *corev1.Pod) { p.UID = serverUID })
	in := rollup.Input{Previous: map[string]operatorstatus.Condition{contract.PluginsDegraded: {Status: previous}}}
	resource := &operatorstatus.Status{Nodes: []operatorstatus.NodeStatus{{Name: "a", Replacing: replacing}}}
	s.expect(&in, byNode([]*corev1.Pod{p}), nil, resource)
	return in.Nodes[0]
}

func TestReplacementExcusesItsNodeForABoundedTime(t *testing.T) {
	s, started := syncingOf(withKeys("2"), abc), ago(time.Hour).Add(rollup.QuietPeriod)
	for i, step := range []struct {
		at        time.Duration
		replacing bool
		want      time.Time
	}{
		{0, false, started},
		{time.Minute, true, now.Add(6 * time.Minute)},
		{time.Hour, true, now.Add(6 * time.Minute)}, // stuck
		{2 * time.Hour, false, started},
		{3 * time.Hour, true, now.Add(3*time.Hour + 5*time.Minute)},
	} {
		if got := attendedAt(s, step.at, operatorstatus.False, step.replacing).QuietUntil; !got.Equal(step.want) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// What the process before had found stays until this one could find it.
func TestNewProcessLeavesAStandingUnknown(t *testing.T) {
	for previous, want := range map[string]time.Time{
		operatorstatus.Unknown: now.Add(-time.Hour), operatorstatus.True: now, operatorstatus.False: now,
	} {
		s := syncingOf(withKeys("2"), abc)
		for _, at := range []time.Duration{0, time.Minute} {
			if got := attendedAt(s, at, previous, false).Due["2"]; !got.Equal(want.Add(rollup.FirstReport)) {
				t.Errorf("%s: due %s, want %s", previous, got, want.Add(rollup.FirstReport))
			}
			previous = operatorstatus.Unknown // in the same process it does not matter
		}
	}
}
