package pluginhealthcontroller

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// abc are Nodes that exist; b is not Ready.
var abc = map[string]informers.Node{"a": {Name: "a", Ready: true}, "b": {Name: "b"}, "c": {Name: "c", Ready: true}}

// observed is the input of a roll-up by pods alone.
func observed(target *target, pods []*corev1.Pod, nodes map[string]informers.Node) (in rollup.Input) {
	syncingOf(target, nodes).expect(&in, byNode(alive(pods)), nil, &operatorstatus.Status{})
	return in
}

// syncingOf is a sync of a target in a cluster with nodes.
func syncingOf(target *target, nodes map[string]informers.Node) *healthSync {
	return &healthSync{Controller: &Controller{}, healthState: &healthState{},
		target: &target.Snapshot, now: now, again: now.Add(1e17),
		node: func(name string) (informers.Node, bool) { n, exists := nodes[name]; return n, exists }}
}

func revisions(t *delivery.Snapshot) {
	t.State.Revisions = map[string][]v1alpha1.Plugin{"7": plugins("1"), "8": plugins("2", "1"), "9": {}}
}
func unknown(t *delivery.Snapshot) { t.SetsKnown, t.LiveKnown, t.State.Live = false, false, nil }

var expectedNodes = []struct {
	name   string
	target *target
	pods   []*corev1.Pod
	want   string // node:keys, keys being ? where they are not known
}{
	{"none", withKeys("2"), nil, ""},
	{"by name, whatever the order", withKeys("2", "1"), []*corev1.Pod{pod("c"), pod("a"), pod("b")}, "a:2,1 b:2,1 c:2,1"},
	{"not placed yet", withKeys("2"), []*corev1.Pod{pod("a"), pod("")}, "a:2"},
	{"ended", withKeys("2"),
		[]*corev1.Pod{pod("a", phase(corev1.PodSucceeded)), pod("b", phase(corev1.PodFailed)),
			pod("c", phase(corev1.PodPending))}, "c:2"},
	{"terminating", withKeys("2"), []*corev1.Pod{pod("a", terminating), pod("c")}, "c:2"},
	{"its Node is gone", withKeys("2"), []*corev1.Pod{pod("a"), pod("z")}, "a:2"},

	// Of two pods on a node the newest counts.
	{"two pods: the newer", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(8), aged(time.Minute)), pod("a", revision(7))}, "a:2,1"},
	{"two pods: the newer, whatever the order", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(7)), pod("a", revision(8), aged(time.Minute))}, "a:2,1"},
	{"two pods as old: the last by name", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", named("y"), revision(8)), pod("a", named("x"), revision(7))}, "a:2,1"},
	{"two pods as old: the last by name, whatever the order", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", named("x"), revision(7)), pod("a", named("y"), revision(8))}, "a:2,1"},
	{"two pods: the newer terminates", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(8), aged(time.Minute), terminating), pod("a", revision(7))}, "a:1"},
	{"two pods: the newer has ended", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(8), aged(time.Minute), phase(corev1.PodFailed)), pod("a", revision(7))}, "a:1"},

	// Its plugins.
	{"by its label", withKeys("2").but(revisions), []*corev1.Pod{pod("a", revision(7)), pod("b", revision(8))},
		"a:1 b:2,1"},
	{"by the Secret that it mounts", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", mounting("encryption-config-7"))}, "a:1"},
	{"the Secret outweighs the label", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(7), mounting("encryption-config-8"))}, "a:2,1"},
	{"it mounts the live one", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(7), mounting("encryption-config"))}, "a:2"},
	{"a revision that could not be read is not the live one", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(6))}, "a:?"},
	{"a revision with no plugin", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(9)), pod("b", revision(8))}, "a: b:2,1"},
	{"no plugin at all", withKeys(), []*corev1.Pod{pod("a"), pod("b")}, "a: b:"},
	{"its revision is about to be read", withKeys("2").but(revisions),
		[]*corev1.Pod{pod("a", revision(6)), pod("b", revision(7))}, "a:? b:1"},
	{"nothing is known", withKeys().but(unknown), []*corev1.Pod{pod("a"), pod("b", revision(7))}, "a:? b:?"},
}

func TestExpectedNodes(t *testing.T) {
	for _, tt := range expectedNodes {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, n := range observed(tt.target, tt.pods, abc).Nodes {
				keys := strings.Join(n.Keys, ",")
				if n.Keys == nil {
					keys = "?"
				}
				got = append(got, n.Name+":"+keys)
				if n.Ready != abc[n.Name].Ready {
					t.Errorf("node %s is Ready: %v", n.Name, n.Ready)
				}
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("%q, want %q", text, tt.want)
			}
		})
	}
}

// Of two reporters on a node, while one delivery replaces another, it is always the same:
// otherwise the message would change from sync to sync.
func TestOfTwoReportersOnANodeTheNewerCounts(t *testing.T) {
	reporter := func(name, target, node string, age time.Duration,
		change ...func(*corev1.Pod)) *unstructured.Unstructured {
		p := pod(node, named(name), aged(age))
		p.Labels = map[string]string{contract.APIServerLabel: target, contract.ModeLabel: "CompanionPod"}
		for _, c := range change {
			c(p)
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: o}
	}
	deleted := reporter("deleted", "api", "a", 0, terminating)
	ours := []*unstructured.Unstructured{
		reporter("old", "api", "a", time.Hour), reporter("new", "api", "a", time.Minute),
		reporter("only", "api", "b", time.Hour),
		reporter("x", "api", "c", time.Hour), reporter("y", "api", "c", time.Hour),
		reporter("other", "other", "a", time.Second), deleted,
	}
	for range 20 {
		rand.Shuffle(len(ours), func(i, j int) { ours[i], ours[j] = ours[j], ours[i] })
		got := map[string]string{}
		for node, pods := range byNode(reporterPods("api", ours)) {
			got[node] = newest(pods).Name
		}
		if d := cmp.Diff(map[string]string{"a": "new", "b": "only", "c": "y"}, got); d != "" {
			t.Fatal(d)
		}
	}
}

func TestAPodBeginsOnItsNode(t *testing.T) {
	if got := began(pod("a")); !got.Equal(ago(time.Hour).Time) {
		t.Errorf("no start is known: %s", got)
	}
	// The mirror of a static pod is made again while the pod runs on.
	for _, created := range []time.Duration{time.Minute, 3 * time.Hour} {
		mirror := pod("a", aged(created), func(p *corev1.Pod) { at := ago(2 * time.Hour); p.Status.StartTime = &at })
		if got := began(mirror); !got.Equal(ago(2 * time.Hour).Time) {
			t.Errorf("created %s ago: %s", created, got)
		}
	}
}

func TestQuiet(t *testing.T) {
	for _, tt := range []struct {
		name      string
		pod       *corev1.Pod
		container string
		since     time.Duration
	}{
		{"nothing is known of containers", pod("a"), "api", time.Hour},
		{"a new pod", pod("a", aged(time.Second)), "api", time.Second},
		{"it started with its pod", pod("a", status(running("api", time.Hour))), "api", time.Hour},
		{"it was started again", pod("a", status(running("api", time.Minute))), "api", time.Minute},
		{"a plugin was started again", pod("a", status(running("kms", time.Minute)), status(running("api", time.Hour))),
			"api", time.Minute},
		{"the reporter was started again",
			pod("a", status(running("kms-health", time.Minute)), status(running("api", time.Hour))), "api", time.Hour},
		{"the first is meant", pod("a", status(running("kms", time.Hour)), status(ended("api", 0, time.Minute))), "",
			time.Minute},
		{"the first one except the reporter counts",
			pod("a", status(running("kms-health", time.Second)), status(running("api", time.Minute)), func(p *corev1.Pod) {
				p.Spec.Containers = slices.Insert(p.Spec.Containers, 0, container("kms-health", "sockets"))
			}), "", time.Minute},
		{"it ended in order", pod("a", status(ended("api", 0, time.Minute))), "api", time.Minute},
		{"a plugin ended in order", pod("a", status(ended("kms", 0, time.Minute)), status(running("api", time.Hour))), "api",
			time.Minute},
		{"it crashed", pod("a", status(ended("api", 1, time.Minute))), "api", time.Minute},
		{"it ended before its pod began, as the clocks have it", pod("a", status(ended("api", 1, 2*time.Hour))), "api",
			time.Hour},
		{"it crashed, and is to be started again", pod("a", status(after(waiting("api", "CrashLoopBackOff"), 3, 1, ""))),
			"api", time.Minute},
		{"it crashed, and runs", pod("a", status(after(running("api", 50*time.Second), 3, 1, ""))), "api", 50 * time.Second},
		{"another container was started again",
			pod("a", status(running("certs", time.Minute)), status(running("api", time.Hour))), "api", time.Hour},
		{"another container crashed", pod("a", status(ended("certs", 1, time.Minute)), status(running("api", time.Hour))),
			"api", time.Hour},
		{"a plugin that is a sidecar was started again", pod("a", status(running("api", time.Hour)), func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{running("kms", time.Minute)}
		}), "api", time.Minute},
		{"no containers", pod("a", func(p *corev1.Pod) { p.Spec.Containers = nil }), "", time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := withKeys("2").but(func(t *delivery.Snapshot) { t.Container = tt.container })
			until := newBeside(&target.Snapshot, tt.pod, target.State.Live, nil).quiet()
			if want := now.Add(rollup.QuietPeriod - tt.since); !until.Equal(want) {
				t.Errorf("until %s, want %s", until, want)
			}
		})
	}
}

// By what the containers mount: the API server and the plugins share the sockets' folder.
func TestSilenceIsNotExcusedByAnotherContainer(t *testing.T) {
	for name, since := range map[string]time.Duration{"api": time.Minute, "kms": time.Minute, "other": time.Hour} {
		n := observed(withKeys("2"), []*corev1.Pod{pod("a", status(running(name, time.Minute)))}, abc).Nodes[0]
		if want := now.Add(rollup.QuietPeriod - since); !n.QuietUntil.Equal(want) {
			t.Errorf("%s was started again: excused until %s, want %s", name, n.QuietUntil, want)
		}
	}
}
