package pluginhealthcontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/reportercontroller"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/must"
)

// abc are Nodes that exist; b is not Ready.
var abc = map[string]informers.Node{"a": {Name: "a", Ready: true}, "b": {Name: "b"}, "c": {Name: "c", Ready: true}}

// observed returns the roll-up's input that follows from pods and Nodes, without an operator resource.
func observed(target *target, pods []*corev1.Pod, nodes map[string]informers.Node) (in rollup.Input) {
	return observedBeside(target, pods, nodes, &operatorstatus.Status{})
}

func observedBeside(target *target, pods []*corev1.Pod, nodes map[string]informers.Node, resource *operatorstatus.Status,
) (in rollup.Input) {
	s := syncingOf(target, nodes)
	s.resource = resource
	s.expect(&in, byNode(s.readers(pods)), nil)
	return in
}

// syncingOf returns a sync of a target in a cluster with these Nodes.
func syncingOf(target *target, nodes map[string]informers.Node) *healthSync {
	return &healthSync{Controller: &Controller{}, healthState: &healthState{attendance: map[string]nodeHistory{}},
		target: &target.Snapshot, resource: &operatorstatus.Status{}, now: now, again: now.Add(1e17),
		node: func(name string) (informers.Node, bool) { n, exists := nodes[name]; return n, exists }}
}

// revisions returns a target whose live plugin has the key ID 2, with the plugin sets of three revisions.
func revisions() *target {
	return withKeys("2").but(func(t *delivery.Snapshot) {
		t.State.Revisions = map[string][]v1alpha1.Plugin{"7": plugins("1"), "8": plugins("2", "1"), "9": {}}
	})
}

func unknown(t *delivery.Snapshot) { t.SetsKnown, t.LiveKnown, t.State.Live = false, false, nil }

type servers = []*corev1.Pod

var expectedNodes = []struct {
	name   string
	target *target
	pods   []*corev1.Pod
	want   string // node:keys, with ? for unknown keys
}{
	{"none", withKeys("2"), nil, ""},
	{"by name", withKeys("2", "1"), servers{pod("c"), pod("a"), pod("b")}, "a:2,1 b:2,1 c:2,1"},
	{"not placed yet", withKeys("2"), servers{pod("a"), pod("")}, "a:2"},
	{"ended", withKeys("2"), servers{pod("a", phase(corev1.PodSucceeded)), pod("b", phase(corev1.PodFailed)),
		pod("c", phase(corev1.PodPending))}, "c:2"},
	{"terminating", withKeys("2"), servers{pod("a", terminating), pod("c")}, "c:2"},
	{"its Node is gone", withKeys("2"), servers{pod("a"), pod("z")}, "a:2"},

	// If two pods of a node exist at the first look, nothing tells which is the later one.
	{"two pods: the last by name", revisions(),
		servers{pod("a", named("y"), revision(8), aged(2*time.Hour)), pod("a", named("x"), revision(7))}, "a:2,1"},
	{"two pods: the last by name terminates", revisions(),
		servers{pod("a", named("y"), revision(8), terminating), pod("a", named("x"), revision(7))}, "a:1"},
	{"two pods: the last by name has ended", revisions(),
		servers{pod("a", named("y"), revision(8), phase(corev1.PodFailed)), pod("a", named("x"), revision(7))}, "a:1"},

	// The plugins of a pod.
	{"by its label", revisions(), servers{pod("a", revision(7)), pod("b", revision(8))}, "a:1 b:2,1"},
	{"by the Secret that it mounts", revisions(), servers{pod("a", mounting("encryption-config-7"))}, "a:1"},
	{"the Secret outweighs the label", revisions(), servers{pod("a", revision(7), mounting("encryption-config-8"))},
		"a:2,1"},
	{"it has a revision, and mounts other Secrets alone: it reads none", revisions(),
		servers{pod("a", revision(7), mounting("serving-cert")), pod("b", revision(7))}, "b:1"},
	{"it mounts the live one", revisions(), servers{pod("a", revision(7), mounting("encryption-config"))}, "a:2"},
	{"a revision that could not be read is not the live one", revisions(), servers{pod("a", revision(6))}, "a:?"},
	{"a revision with no plugin", revisions(), servers{pod("a", revision(9)), pod("b", revision(8))}, "a: b:2,1"},
	{"no plugin at all", withKeys(), servers{pod("a"), pod("b")}, "a: b:"},
	{"its revision is about to be read", revisions(), servers{pod("a", revision(6)), pod("b", revision(7))}, "a:? b:1"},
	{"plugins of the configuration", withKeys("2").but(func(t *delivery.Snapshot) { t.Plugins = plugins("3") }),
		servers{pod("a", revision(7))}, "a:3"},
	{"nothing is known", withKeys().but(unknown), servers{pod("a"), pod("b", revision(7))}, "a:? b:?"},
}

func TestExpectedNodes(t *testing.T) {
	for _, tt := range expectedNodes {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // in any order of the pods
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
				slices.Reverse(tt.pods)
			}
		})
	}
}

// While one delivery replaces another, a node has two reporters, and in a surge two API servers. Which counts is by what
// was seen, whatever the clocks of the API servers say that created them, and stays so, or the message would change with
// each sync.
func TestOfTwoPodsOnANodeTheOneSeenLastCounts(t *testing.T) {
	at := func(uid string, age time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
		return withUID(uid, append(change, aged(age))...)
	}
	first, second := at(serverUID, time.Hour), at(beforeUID, 24*time.Hour)
	ends := at(beforeUID, 24*time.Hour, terminating)
	for name, steps := range map[string][]struct {
		pods []*corev1.Pod
		want *corev1.Pod
	}{
		"the second comes later":       {{servers{first}, first}, {servers{first, second}, second}, {servers{first, second}, second}},
		"the second ends":              {{servers{first}, first}, {servers{first, second}, second}, {servers{first, ends}, first}},
		"both are there at the start":  {{servers{first, second}, first}, {servers{first, second}, first}},
		"both come together":           {{nil, nil}, {servers{first, second}, first}},
		"none is there that goes on":   {{servers{ends}, nil}},
		"the first goes, and is alone": {{servers{first, second}, first}, {servers{second}, second}},
	} {
		t.Run(name, func(t *testing.T) {
			var before map[string]time.Time
			for i, step := range steps {
				l := lookOf(withKeys("2"))
				l.now, l.first, l.was.began = now.Add(time.Duration(i)*time.Minute), i == 0, before
				for range 2 { // in any order
					if got := l.latest(step.pods); got != step.want {
						t.Errorf("look %d: %v, want %v", i, klog.KObj(got), klog.KObj(step.want))
					}
					slices.Reverse(step.pods)
				}
				before = l.began
			}
		})
	}
}

// Reporters of other API servers, and other pods of an API server's, are none of a target's.
func TestReportersOfATargetByNode(t *testing.T) {
	reporter := func(name, target, node string, mode v1alpha1.Mode) informers.Managed {
		p := pod(node, named(name))
		p.Labels = map[string]string{contract.APIServerLabel: target, contract.ModeLabel: string(mode)}
		return informers.Managed{APIServer: target, Pod: p}
	}
	got := map[string][]string{}
	for node, pods := range byNode(reporterPods("api", []informers.Managed{
		reporter("one", "api", "a", v1alpha1.ModeCompanionPod), reporter("two", "api", "a", v1alpha1.ModeDaemonSet),
		reporter("only", "api", "b", v1alpha1.ModeDaemonSet), reporter("other", "other", "a", v1alpha1.ModeDaemonSet),
		reporter("no reporter", "api", "b", "")})) {
		for _, p := range pods {
			got[node] = append(got[node], p.Name)
		}
	}
	if d := cmp.Diff(map[string][]string{"a": {"one", "two"}, "b": {"only"}}, got); d != "" {
		t.Error(d)
	}
}

// An agent mounts a folder of its node, whatever the API server there mounts.
func TestAgentsReportCountsWhereTheAPIServerMountsTheFolder(t *testing.T) {
	const folder, socket = "/var/run/kmsplugin", "/var/run/kmsplugin/kms-2.sock"
	onNode := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder}}
	ofPod := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	agent := pod("a", named("agent"), func(p *corev1.Pod) {
		p.Labels = map[string]string{contract.ModeLabel: string(v1alpha1.ModeDaemonSet)}
	})
	companion := pod("a", named("companion"), aged(time.Minute))
	for name, tt := range map[string]struct {
		at       string
		volume   corev1.VolumeSource
		reporter []*corev1.Pod
		agents   string // the folder that agents mount, if it is recorded
		want     []string
	}{
		"the folder":              {folder, onNode, []*corev1.Pod{agent}, folder, nil},
		"a folder above":          {"/var/run", onNode, []*corev1.Pod{agent}, folder + "/kmsplugin", nil},
		"the socket alone":        {socket, onNode, []*corev1.Pod{agent}, "", []string{"2"}},
		"another folder":          {"/var/run/kms", onNode, []*corev1.Pod{agent}, "", []string{"2"}},
		"a volume of the pod":     {folder, ofPod, []*corev1.Pod{agent}, "", []string{"2"}},
		"the same, and companion": {folder, ofPod, []*corev1.Pod{agent, companion}, "", nil},
		"not as the agents":       {folder, onNode, []*corev1.Pod{agent}, "/elsewhere", []string{"2"}},
		"no agent at the moment":  {folder, ofPod, nil, folder, []string{"2"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := pod("a")
			server.Spec.Volumes = []corev1.Volume{{Name: "sockets", VolumeSource: tt.volume}}
			server.Spec.Containers[0].VolumeMounts[0].MountPath = tt.at
			var in rollup.Input
			target := withKeys("2")
			target.State.Mode = v1alpha1.ModeDaemonSet
			if tt.agents != "" {
				target.State.Folders = []objects.Folder{{MountPath: folder, HostPath: tt.agents}}
			}
			syncingOf(target, abc).expect(&in, byNode([]*corev1.Pod{server}), byNode(tt.reporter))
			if d := cmp.Diff(tt.want, in.Nodes[0].NotMounted); d != "" {
				t.Error(d)
			}
		})
	}
}

// Agents probe the plugins of all running pods, and each node is to report on those of its own pod.
func TestAgentsReportWhatIsExpectedInARollout(t *testing.T) {
	config, err := v1alpha1.DecodeOperator([]byte("apiVersion: kmshealth.openshift.io/v1alpha1\n" +
		"kind: OperatorConfiguration\nimage: reporter:1\napiServers:\n" +
		"- {resource: kubeapiservers, namespace: ns, podSelector: {app: api}, container: api, mode: DaemonSet}\n"))
	must.Succeed(t, err)
	set := func(keys ...string) encryptionconfig.Set {
		all := plugins(keys...)
		for i := range all {
			all[i].Timeout.Duration = 3 * time.Second
		}
		return encryptionconfig.Set{Known: true, Config: encryptionconfig.Config{Plugins: all}}
	}
	onHost := func(uid string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.UID = types.UID(uid)
			p.Spec.Volumes = []corev1.Volume{{Name: "sockets", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}}}}
		}
	}
	for name, tt := range map[string]struct{ before, after encryptionconfig.Set }{
		"a key is dropped":  {set("2", "1"), set("2")},
		"a key is added":    {set("2"), set("2", "1")},
		"KMS is turned off": {set("2"), set()},
		"KMS is turned on":  {set(), set("2")},
	} {
		t.Run(name, func(t *testing.T) {
			s := &reportercontroller.Snapshot{
				Sets: map[string]encryptionconfig.Set{"": tt.after, "7": tt.before, "8": tt.after},
				Pods: []*corev1.Pod{pod("a", revision(7), onHost(beforeUID)), pod("c", revision(8), onHost(serverUID))},
			}
			s.Config, s.Target, s.Namespace = config, &config.APIServers[0], "kms-health"
			plan := reportercontroller.ComputePlan(s)
			target := &target{delivery.Snapshot{
				APIServer: *s.Target, SetsKnown: true, LiveKnown: true, State: plan.State, Served: plan.Served}}
			at := slices.IndexFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" })
			file := informers.As[appsv1.DaemonSet](plan.Apply[at]).Spec.Template.Annotations[contract.ConfigAnnotation]
			probes, err := v1alpha1.DecodeReporter([]byte(file))
			must.Succeed(t, err)
			in := observed(target, s.Pods, abc)
			in.Now = now.Add(rollup.FirstReport)
			for _, n := range in.Nodes {
				r := report(n.Name)
				for _, p := range probes.Plugins {
					e := contract.Entry{KeyID: p.KeyID, KEKID: "kek", Status: contract.Healthy, Interval: 30 * time.Second}
					r.Entries = append(r.Entries, entryOf(e, in.Now))
				}
				in.Reports = append(in.Reports, r)
			}
			if c := rollup.Evaluate(&in).Conditions[contract.PluginsDegraded]; c.Reason != contract.AsExpected {
				t.Errorf("%+v", c)
			}
		})
	}
}
