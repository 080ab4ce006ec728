package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
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

var attendances = []struct {
	name     string
	was      attendance
	replaced []string
	ours     []*corev1.Pod
	named    string // by the report
	writers  []string
	since    time.Duration // ago; zero: never
	attended bool
}{
	{"none", attendance{}, nil, nil, "", []string{serverUID}, 0, false},
	{"a companion beside it", attendance{}, nil, []*corev1.Pod{companionPod}, "",
		[]string{serverUID, "companion"}, time.Hour, true},
	{"a companion beside the pod before", attendance{}, nil, []*corev1.Pod{earlierPod}, "", []string{serverUID},
		0, false},
	{"a companion beside the pod that it replaces", attendance{}, []string{beforeUID}, []*corev1.Pod{earlierPod},
		"", []string{beforeUID, serverUID, "earlier"}, 0, false},
	{"a sidecar of the pod that it replaces", attendance{}, []string{beforeUID}, nil, "", []string{beforeUID, serverUID},
		0,
		false},
	{"a companion that is being deleted", attendance{}, nil, []*corev1.Pod{deletedPod}, "",
		[]string{serverUID, "deleted"}, 2 * time.Hour, false},
	{"a companion that was evicted", attendance{}, nil, []*corev1.Pod{evictedPod}, "",
		[]string{serverUID, "evicted"}, time.Hour, false},
	{"an agent", attendance{}, nil, []*corev1.Pod{agentPod}, "", []string{serverUID, "agent"}, 3 * time.Hour,
		true},
	{"both, while one delivery replaces another", attendance{}, nil, []*corev1.Pod{companionPod, agentPod}, "",
		[]string{serverUID, "agent", "companion"}, 3 * time.Hour, true},
	{"one that was deleted, and whose report stands",
		attendance{serverUID, firstStart, ago(time.Minute).Time, []string{serverUID, "gone"}}, nil, nil, "gone",
		[]string{serverUID, "gone"}, time.Minute, false},
	{"one that was deleted, and whose report was replaced",
		attendance{serverUID, firstStart, ago(time.Minute).Time, []string{serverUID, "gone"}}, nil, nil, "other",
		[]string{serverUID},
		time.Minute, false},
	{"one that was deleted with its API server's pod",
		attendance{beforeUID, firstStart, ago(time.Hour).Time, []string{beforeUID, "gone"}}, nil, nil, "gone",
		[]string{serverUID}, 0,
		false},
	{"created again and again: the first counts", attendance{serverUID, firstStart, ago(2 * time.Hour).Time,
		[]string{serverUID}},
		nil, []*corev1.Pod{companionPod}, "", []string{serverUID, "companion"}, 2 * time.Hour, true},
}

func TestReportersOfAnAPIServersPod(t *testing.T) {
	for _, tt := range attendances {
		t.Run(tt.name, func(t *testing.T) {
			got, attended := tt.was.next(pod("a", func(p *corev1.Pod) { p.UID = serverUID }), lastStart, tt.replaced, tt.ours,
				tt.named)
			if diff := cmp.Diff(tt.writers, got.writers); diff != "" || got.server != serverUID || attended != tt.attended {
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
	got, _ := attendance{}.next(pod("a", func(p *corev1.Pod) {
		p.UID = "11111111-1111-1111-1111-111111111111"
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash, "kubernetes.io/config.hash": hash}
	}), time.Time{}, nil, nil, "")
	if diff := cmp.Diff([]string{hash}, got.writers); diff != "" {
		t.Error(diff)
	}
}

func TestAPIServerStartedWhetherReadyOrNot(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want time.Duration // ago
	}{
		"running":                  {pod("a", status(running("api", time.Minute))), time.Minute},
		"a plugin, and not it":     {pod("a", status(running("kms", time.Minute))), time.Hour},
		"not started yet":          {pod("a", status(waiting("api", "PodInitializing"))), time.Hour},
		"waiting to start again":   {pod("a", status(after(waiting("api", "CrashLoopBackOff"), 3, 1, ""))), time.Hour},
		"of a mirror created late": {pod("a", aged(time.Second), status(running("api", time.Minute))), time.Minute},
	} {
		if got := started(tt.pod, "api"); !got.Equal(ago(tt.want).Time) {
			t.Errorf("%s: %s, want %s", name, got, ago(tt.want))
		}
	}
}
