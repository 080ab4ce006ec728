package pluginhealthcontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// report returns a report that was just seen to change.
func report(node string, keys ...string) rollup.Report {
	r := rollup.Report{Report: operatorstatus.Report{Node: node, Form: operatorstatus.FormCondition}}
	for _, key := range keys {
		e := contract.Entry{KeyID: key, KEKID: "kek-" + key, Status: contract.Healthy, LastChecked: now, Interval: 30 * time.Second}
		r.Entries = append(r.Entries, entryOf(e, now))
	}
	return r
}

var reading = func() []v1alpha1.Plugin {
	p := plugins("2")
	p[0].Role = v1alpha1.RoleRead
	return p
}()
var set7, set8 = plugins("1", "2"), plugins("2", "1")
var turnedOff = withKeys("2").but(func(t *delivery.Snapshot) { t.State.Live = reading })

func changed() *target {
	return withKeys("2").but(func(t *delivery.Snapshot) { t.State.NotLoaded = []string{"before"} })
}

// agreement returns an agreement on key 2 that has just settled.
func agreement(kekID string) rollup.Agreement {
	return rollup.Agreement{AgreedKey: rollup.AgreedKey{KeyID: "2", KEKID: kekID}, Seen: now.Add(-rollup.SettlePeriod)}
}

// runsAs makes the API server's container run with a container ID.
func runsAs(id string) func(*corev1.Pod) {
	s := running("api", time.Hour)
	s.ContainerID = id
	return status(s)
}
func notLive(t *delivery.Snapshot) { t.LiveKnown = false }

var writeKeys = []struct {
	name          string
	target        *target
	before, after []v1alpha1.Plugin
	rolled        int // how many of the nodes a, b and c have the pod of revision 8
	want          string
	others        []*corev1.Pod // in addition to one pod of each node
}{
	{"aescbc to KMS, 1 of 3", withKeys("2"), nil, plugins("2"), 1, "False WriteKeyNotDeployed", nil},
	{"aescbc to KMS, 2 of 3", withKeys("2"), nil, plugins("2"), 2, "False WriteKeyNotDeployed", nil},
	{"aescbc to KMS, all", withKeys("2"), nil, plugins("2"), 3, "True AsExpected", nil},
	{"a new key, 1 of 3: the others read it", withKeys("2", "1"), set7, set8, 1, "False WriteKeyNotDeployed", nil},
	{"a new key, all", withKeys("2", "1"), set7, set8, 3, "True AsExpected", nil},
	{"a new key, all; one of before is being deleted", withKeys("2", "1"), set7, set8, 3, "False WriteKeyNotDeployed",
		[]*corev1.Pod{pod("c", named("before"), revision(7), terminating)}},
	{"a new key, all; one of before still runs", withKeys("2", "1"), set7, set8, 3, "False WriteKeyNotDeployed",
		[]*corev1.Pod{pod("c", named("api-before"), revision(7))}},
	{"a new key, all; on another node one of before is being deleted", withKeys("2", "1"), set7, set8, 3,
		"False WriteKeyNotDeployed", []*corev1.Pod{pod("d", revision(7), terminating)}},
	{"a new key, all; one of before has ended", withKeys("2", "1"), set7, set8, 3, "True AsExpected",
		[]*corev1.Pod{pod("c", named("before"), revision(7), terminating, phase(corev1.PodSucceeded))}},
	{"a new key, all; the Node of one of before is gone", withKeys("2", "1"), set7, set8, 3, "True AsExpected",
		[]*corev1.Pod{pod("z", revision(7), terminating)}},
	{"a new key, all; one with it is being deleted", withKeys("2", "1"), set7, set8, 3, "True AsExpected",
		[]*corev1.Pod{pod("c", named("before"), revision(8), terminating)}},
	{"KMS being turned off, 2 of 3", turnedOff, plugins("2"), reading, 2, "False WriteKeyNotDeployed", nil},
	{"KMS being turned off, all", turnedOff, plugins("2"), reading, 3, "Unknown NoWriteKey", nil},
	{"KMS being turned off, all; one of before is being deleted", turnedOff, plugins("2"), reading, 3,
		"False WriteKeyNotDeployed", []*corev1.Pod{pod("c", named("before"), revision(7), terminating)}},
	{"KMS being turned off in the live Secret, while a container ran",
		turnedOff.but(func(t *delivery.Snapshot) { t.State.NotLoaded = []string{"before"} }), plugins("2"), reading, 3,
		"Unknown WriteKeyUnknown", []*corev1.Pod{pod("d", runsAs("before"))}},
	{"a revision that cannot be read, beside one that can", withKeys("2"), plugins("2"), plugins("2"), 2,
		"Unknown WriteKeyUnknown", []*corev1.Pod{pod("d", revision(6))}},
	{"a revision that cannot be read is being deleted", withKeys("2"), plugins("2"), plugins("2"), 3,
		"Unknown WriteKeyUnknown", []*corev1.Pod{pod("c", named("before"), revision(6), terminating)}},
	{"the live Secret cannot be read any more", withKeys("2").but(notLive), plugins("2"), plugins("2"), 2,
		"True AsExpected", nil},
	{"the live Secret cannot be read any more, and had another key", withKeys("1").but(notLive), plugins("2"),
		plugins("2"), 2, "False WriteKeyNotDeployed", nil},
	{"the live Secret cannot be read any more, in which KMS was off", withKeys().but(notLive), plugins("2"), plugins("2"),
		2, "Unknown WriteKeyUnknown", nil},
	{"the live Secret cannot be read any more, and a pod mounts it", withKeys("2").but(notLive), plugins("2"),
		plugins("2"), 3, "Unknown WriteKeyUnknown", []*corev1.Pod{pod("d")}},
	{"the live Secret was changed while a container ran", changed(), plugins("2"), plugins("2"), 3,
		"Unknown WriteKeyUnknown", []*corev1.Pod{pod("d", runsAs("before"))}},
	{"the live Secret was changed before a container started", changed(), plugins("2"), plugins("2"), 3, "True AsExpected",
		[]*corev1.Pod{pod("d", runsAs("after"))}},
	{"the live Secret was changed, and a container has ended since", changed(), plugins("2"), plugins("2"), 3,
		"Unknown WriteKeyUnknown", []*corev1.Pod{pod("d",
			status(corev1.ContainerStatus{Name: "api", ContainerID: "before"}))}},
	{"the live Secret was changed, and a new pod has no status yet", changed(), plugins("2"), plugins("2"), 3,
		"True AsExpected", []*corev1.Pod{pod("d")}},
	{"plugins of the configuration were changed", changed().but(func(t *delivery.Snapshot) { t.Plugins = plugins("2") }),
		plugins("2"), plugins("2"), 3, "Unknown WriteKeyUnknown", []*corev1.Pod{pod("d", runsAs("before"))}},
	{"some resources have another key",
		withKeys("2").but(func(t *delivery.Snapshot) { t.State.Mixed = map[string]string{"8": "secrets by aescbc"} }),
		plugins("2"), plugins("2"), 3, "False WriteKeyOfSome", nil},
	{"one of two pods of a node is not reported", withKeys("2"), plugins("2"), plugins("2"), 3, "Unknown SeveralPods",
		[]*corev1.Pod{pod("c", named("second"), revision(8))}},
	{"a provider that cannot be probed may encrypt",
		withKeys().but(func(t *delivery.Snapshot) { t.State.NotProbed = "one" }), reading, reading, 3,
		"Unknown WriteKeyUnknown", nil},
}

// A key is agreed on when every API server writes with it. Revision 7 is before the change, revision 8 after it.
func TestTheWriteKeyIsAgreedOnWhenEveryAPIServerWritesWithIt(t *testing.T) {
	nodes := map[string]informers.Node{}
	for _, name := range []string{"a", "b", "c", "d"} {
		nodes[name] = informers.Node{Name: name, Ready: true}
	}
	for _, tt := range writeKeys {
		t.Run(tt.name, func(t *testing.T) {
			target := tt.target.but(func(t *delivery.Snapshot) {
				t.State.Revisions = map[string][]v1alpha1.Plugin{"7": tt.before, "8": tt.after}
			})
			var pods []*corev1.Pod
			for i, name := range []string{"a", "b", "c"} {
				pods = append(pods, pod(name, revision(7)))
				if i < tt.rolled {
					pods[i] = pod(name, revision(8))
				}
			}
			pods = append(pods, tt.others...)
			in := observed(target, pods, nodes)
			in.Now = now
			for _, n := range in.Nodes { // each reports on what it has
				if n.Keys == nil {
					n.Keys = []string{"2"}
				}
				in.Reports = append(in.Reports, report(n.Name, n.Keys...))
			}
			in.WriteKey, in.NoWriteKey = configuredKey(&target.Snapshot)
			in.Agreement = agreement("kek-2")
			got := rollup.Evaluate(&in)
			if c := got.Conditions[contract.WriteKeyAgreed]; c.Status+" "+c.Reason != tt.want {
				t.Errorf("%+v, want %s", c, tt.want)
			}
			for _, kind := range []string{contract.PluginsDegraded, contract.HealthReporting} {
				if c := got.Conditions[kind]; c.Reason != contract.AsExpected {
					t.Errorf("%+v", c)
				}
			}
			for _, row := range got.Rows {
				if row.State == rollup.Missing {
					t.Errorf("missing: %+v", row)
				}
			}
		})
	}
}

// library-go takes a key as deployed when each node in nodeStatuses has a pod with it
// (getAPIServerRevisionOfAllInstances). While a kubelet is down, nothing creates a deleted mirror pod again, although
// its kube-apiserver runs.
func TestNoKeyIsAgreedOnWithoutThePodOfAListedNode(t *testing.T) {
	nodes := map[string]informers.Node{"a": {Name: "a", Ready: true}, "b": {Name: "b", Ready: true}}
	target := withKeys("2").but(func(t *delivery.Snapshot) {
		t.State.Revisions = map[string][]v1alpha1.Plugin{"8": plugins("2")}
	})
	for name, tt := range map[string]struct {
		listed operatorstatus.NodeStatus
		want   string
	}{
		"it has a pod":                     {operatorstatus.NodeStatus{Name: "a", Revision: "8"}, "True AsExpected"},
		"its pod is not shown":             {operatorstatus.NodeStatus{Name: "b", Revision: "7"}, "Unknown WriteKeyUnknown"},
		"nothing was installed on it yet":  {operatorstatus.NodeStatus{Name: "b", Replacing: true}, "True AsExpected"},
		"its Node does not exist any more": {operatorstatus.NodeStatus{Name: "z", Revision: "7"}, "True AsExpected"},
	} {
		t.Run(name, func(t *testing.T) {
			in := observedBeside(target, []*corev1.Pod{pod("a", revision(8))}, nodes,
				&operatorstatus.Status{Nodes: []operatorstatus.NodeStatus{tt.listed}})
			in.Now, in.Reports, in.WriteKey = now, []rollup.Report{report("a", "2")}, "2"
			in.Agreement = agreement("kek-2")
			if c := rollup.Evaluate(&in).Conditions[contract.WriteKeyAgreed]; c.Status+" "+c.Reason != tt.want {
				t.Errorf("%+v, want %s", c, tt.want)
			}
		})
	}
}
