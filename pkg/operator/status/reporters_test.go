package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
)

// ofOurs is a reporter's pod on node a, created some time ago.
func ofOurs(t *testing.T, uid, delivery, beside string, age time.Duration, change ...func(*corev1.Pod)) *unstructured.Unstructured {
	t.Helper()
	p := pod("a", named(uid), aged(age))
	p.UID = types.UID(uid)
	p.Labels = map[string]string{contract.APIServerLabel: "api", contract.ModeLabel: delivery}
	p.Annotations = map[string]string{contract.BesideAnnotation: beside}
	for _, c := range change {
		c(p)
	}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: o}
}

func TestReportersOfAnAPIServersPod(t *testing.T) {
	const server, before = "11111111-1111-1111-1111-111111111111", "00000000-0000-0000-0000-000000000000"
	companion := ofOurs(t, "companion", "CompanionPod", server, time.Hour)
	earlier := ofOurs(t, "earlier", "CompanionPod", before, 2*time.Hour)
	deleted := ofOurs(t, "deleted", "CompanionPod", server, 2*time.Hour, terminating)
	evicted := ofOurs(t, "evicted", "CompanionPod", server, time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	start, first := ago(time.Second).Time, ago(time.Minute).Time // of its container: the last, and as first seen
	agent := ofOurs(t, "agent", "DaemonSet", "", 3*time.Hour)
	for _, tt := range []struct {
		name     string
		was      attendance
		replaced []string
		ours     []*unstructured.Unstructured
		named    string // by the report
		writers  []string
		since    time.Duration // ago; zero: never
		attended bool
	}{
		{"none", attendance{}, nil, nil, "", []string{server}, 0, false},
		{"a companion beside it", attendance{}, nil, []*unstructured.Unstructured{companion}, "", []string{server, "companion"}, time.Hour, true},
		{"a companion beside the pod before", attendance{}, nil, []*unstructured.Unstructured{earlier}, "", []string{server}, 0, false},
		{"a companion beside the pod that it replaces", attendance{}, []string{before}, []*unstructured.Unstructured{earlier}, "", []string{before, server, "earlier"}, 0, false},
		{"a sidecar of the pod that it replaces", attendance{}, []string{before}, nil, "", []string{before, server}, 0, false},
		{"a companion that is being deleted", attendance{}, nil, []*unstructured.Unstructured{deleted}, "", []string{server, "deleted"}, 2 * time.Hour, false},
		{"a companion that was evicted", attendance{}, nil, []*unstructured.Unstructured{evicted}, "", []string{server, "evicted"}, time.Hour, false},
		{"an agent", attendance{}, nil, []*unstructured.Unstructured{agent}, "", []string{server, "agent"}, 3 * time.Hour, true},
		{"both, while one delivery replaces another", attendance{}, nil, []*unstructured.Unstructured{companion, agent}, "", []string{server, "agent", "companion"}, 3 * time.Hour, true},
		{"one that was deleted, and whose report stands", attendance{server, first, ago(time.Minute).Time, []string{server, "gone"}}, nil, nil, "gone", []string{server, "gone"}, time.Minute, false},
		{"one that was deleted, and whose report was replaced", attendance{server, first, ago(time.Minute).Time, []string{server, "gone"}}, nil, nil, "other", []string{server}, time.Minute, false},
		{"one that was deleted with its API server's pod", attendance{before, first, ago(time.Hour).Time, []string{before, "gone"}}, nil, nil, "gone", []string{server}, 0, false},
		{"created again and again: the first counts", attendance{server, first, ago(2 * time.Hour).Time, []string{server}}, nil, []*unstructured.Unstructured{companion}, "", []string{server, "companion"}, 2 * time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, attended := tt.was.next(pod("a", func(p *corev1.Pod) { p.UID = server }), start, tt.replaced, tt.ours, tt.named)
			if diff := cmp.Diff(tt.writers, got.writers); diff != "" || got.server != server || attended != tt.attended {
				t.Errorf("%+v, attended %v\n%s", got, attended, diff)
			}
			want := time.Time{}
			if tt.since > 0 {
				want = ago(tt.since).Time
			}
			if !got.since.Equal(want) {
				t.Errorf("since %s, want %s", got.since, want)
			}
			want = start
			if tt.was.server == server { // its container may start again and again
				want = first
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
