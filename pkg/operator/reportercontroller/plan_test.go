package reportercontroller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

func TestAutoChoosesByWhereTheSocketsAre(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*Snapshot)
		delivery v1alpha1.Mode
		reason   delivery.Reason
	}{
		"no pods": {func(*Snapshot) {}, "", contract.NoPods},
		"no pods now": {func(s *Snapshot) { s.State.Mode = v1alpha1.ModeCompanionPod },
			v1alpha1.ModeCompanionPod, contract.NoPods},
		"no pods now, and the mode of another version": {func(s *Snapshot) { s.State.Mode = "Other" }, "", contract.NoPods},
		"in pods": {pods(apiPod("a", "1"), apiPod("b", "2")), v1alpha1.ModeCompanionPod,
			contract.AsExpected},
		"on the host": {pods(apiPod("a", "1", onHost), apiPod("b", "2", onHost)),
			v1alpha1.ModeDaemonSet, contract.AsExpected},
		"on the host and in pods": {pods(apiPod("a", "1", onHost), apiPod("b", "2")),
			v1alpha1.ModeCompanionPod, contract.AsExpected},
		"OpenShift's own reporter in the pods": {pods(apiPod("a", "1", withOpenShiftsReporter)), v1alpha1.ModeCompanionPod,
			contract.AsExpected},
	} {
		s := fixture(t, v1alpha1.ModeAuto, c.change)
		plan := ComputePlan(s)
		if plan.State.Mode != c.delivery || plan.Status.Reason != c.reason || plan.Status.Message == "" {
			t.Errorf("%s: %s, %+v", name, plan.State.Mode, plan.Status)
		}
	}
}

func TestEveryModeIsDelivered(t *testing.T) {
	for _, mode := range v1alpha1.Modes {
		if planned := deliveries[mode] != nil; planned == (mode == v1alpha1.ModeAuto) {
			t.Errorf("%s: planned: %v", mode, planned)
		}
	}
}

func TestEachPodGetsACompanionWithItsPlugins(t *testing.T) {
	s := fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1", revision("4")), apiPod("b", "2", revision("5"))))
	s.Sets = map[string]encryptionconfig.Set{liveRevision: *set(2, 1), "4": *set(1), "5": *set(2, 1)}
	plan := ComputePlan(s)
	var got []string
	for _, pod := range workloads(plan) {
		uid := pod.GetAnnotations()[contract.BesideAnnotation]
		path := "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~empty-dir/sockets"
		mounts := slices.ContainsFunc(informers.As[corev1.Pod](pod).Spec.Volumes, func(v corev1.Volume) bool {
			return v.HostPath != nil && v.HostPath.Path == path
		})
		got = append(got, fmt.Sprintf("%s beside %s with %s: %t", nodeOf(pod), uid, keyIDs(t, pod), mounts))
	}
	if want := []string{"a beside 1 with 1: true", "b beside 2 with 2+1: true"}; !slices.Equal(got, want) ||
		len(plan.Delete) > 0 {
		t.Errorf("%q, deletes %s, want %q", got, names(plan.Delete), want)
	}
	delivered(plan)(s)
	if plan := ComputePlan(s); !plan.Status.Delivered() {
		t.Errorf("%+v", plan.Status)
	}
}

func TestCompanionIsReplacedWithItsPodOrForAChangeOfItsContainer(t *testing.T) {
	begin := func() (s *Snapshot, companion string) {
		s = after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")))
		return s, s.own("Pod")[0].GetName()
	}
	live, companion := begin()
	before := live.own("Pod")[0].GetAnnotations()[contract.ConfigAnnotation]
	live.Config.Probe.Interval.Duration = time.Minute
	next := workloads(deletes(t, live, "for an interval", "", contract.AsExpected))[0]
	if next.GetName() != companion || next.GetAnnotations()[contract.ConfigAnnotation] == before {
		t.Errorf("for an interval %s made, the file was\n%s", next.GetName(), before)
	}
	image, _ := begin()
	image.Config.Image = "reporter:2"
	plan := deletes(t, image, "before the new one runs", "", contract.Progressing)
	if workloads(plan)[0].GetName() == companion {
		t.Error("a new image makes no new companion")
	}
	delivered(plan)(image)
	deletes(t, image, "when the new one runs", "Pod/"+companion, contract.AsExpected)
	replaced, _ := begin()
	replaced.Pods = []*corev1.Pod{apiPod("a", "2")}
	deletes(t, replaced, "after its pod was deleted", "Pod/"+companion, contract.AsExpected)
}

func TestDaemonSetMountsTheFoldersOfTheNodes(t *testing.T) {
	plan := ComputePlan(fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1", onHost), apiPod("b", "2", onHost))))
	if got, want := names(plan.Apply), "ClusterRoleBinding/kms-health-reporter-api "+
		"DaemonSet/kms-health-reporter-api Role/kms-health-operator-api "+
		"ServiceAccount/kms-health-reporter-api"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if folders := hostFolders(t, plan); folders["/var/run/kmsplugin"] != "/run/kms" {
		t.Errorf("%v", folders)
	}
	plan = ComputePlan(fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1"))))
	if plan.Status.Reason != "SocketVolumeMissing" || !strings.Contains(plan.Status.Message, "ns/api-a-1") {
		t.Errorf("sockets in a pod: %+v", plan.Status)
	}
	moved := apiPod("b", "2", onHost, func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/srv/kms" })
	plan = ComputePlan(fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1", onHost), moved)))
	if want := "is /run/kms on some nodes and /srv/kms on others"; !strings.Contains(plan.Status.Message, want) {
		t.Errorf("%+v, want %q", plan.Status, want)
	}
}

// mounting makes a pod mount a ConfigMap.
func mounting(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
		}})
	}
}

func TestConfigMapOfAPluginSetStaysWhileAPodMountsIt(t *testing.T) {
	old := configMapOf(1)
	s := after(t, v1alpha1.ModeSidecar, pods(apiPod("a", "1", mounting(old))))
	s.Sets[liveRevision], s.Config.Probe.Interval.Duration = *set(2, 1), time.Minute
	files := appliedFiles(deletes(t, s, "while a pod mounts it", "", contract.NoReporters))
	for name, want := range map[string]string{old: "kms-1.sock", configMapOf(2, 1): "kms-2.sock"} {
		if file := files[name]; !strings.Contains(file, "interval: 1m0s") || !strings.Contains(file, want) {
			t.Errorf("%s:\n%s", name, file)
		}
	}
	_ = unstructured.SetNestedField(s.own("ConfigMap")[0].Object, "broken", "data", "config.yaml")
	deletes(t, s, "while a pod mounts it, and its file is invalid", "", contract.NoReporters)
	s.Pods = []*corev1.Pod{apiPod("a", "2")}
	deletes(t, s, "when no pod mounts it", "ConfigMap/"+old, contract.NoReporters)
}

func TestInjectionThatItsOwnerRevertedIsNotRepeated(t *testing.T) {
	s := fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")))
	s.Deployment = deployment(1)
	plan := ComputePlan(s)
	if plan.Inject == nil {
		t.Fatalf("%+v", plan.Status)
	}
	// The injected Deployment as the API server shows it if an admission policy rewrites the image.
	injected := deployment(2)
	applied, template := informers.As[appsv1.Deployment](plan.Inject).Spec.Template, &injected.Spec.Template
	template.Annotations = applied.Annotations
	template.Spec.Containers = append(template.Spec.Containers, applied.Spec.Containers...)
	template.Spec.Containers[len(template.Spec.Containers)-1].Image = "mirror/reporter:1"
	template.Spec.Volumes = append(template.Spec.Volumes, applied.Spec.Volumes...)
	s.State = plan.State

	// The injection was not recorded, for example because the operator was killed in between.
	s.Deployment = injected
	plan = ComputePlan(s)
	if recorded := plan.State.Injected; plan.Inject != nil || plan.State.Reverted || recorded == nil ||
		*recorded != (delivery.Injected{Deployment: "apiserver", UID: "d", Generation: 2}) {
		t.Fatalf("what is in place: %v, recorded %+v; %+v", plan.Inject, recorded, plan.Status)
	}
	s.State = plan.State
	owners, target := *s, *s.Target
	if owners.Target, target.Deployment = &target, ""; !ComputePlan(&owners).Eject {
		t.Error("it stays although its owner is to add one")
	}
	scaled, changed := injected.DeepCopy(), injected.DeepCopy()
	scaled.Generation, scaled.Spec.Paused = 3, true
	changed.Generation, changed.Spec.Template.Annotations = 3, map[string]string{contract.PodHashAnnotation: "another"}
	for _, c := range []struct {
		name              string
		deployment        *appsv1.Deployment
		injects, reverted bool
	}{
		{"the owner changes something else", scaled, false, false},
		{"another hash", changed, true, false},
		{"the cache shows an old version", deployment(1), true, false},
		{"a revert", deployment(3), false, true},
	} {
		s.Deployment = c.deployment
		plan = ComputePlan(s)
		if (plan.Inject != nil) != c.injects || plan.State.Reverted != c.reverted ||
			(plan.Status.Reason == "InjectionReverted") != c.reverted {
			t.Errorf("%s: injects %v, %+v", c.name, plan.Inject, plan.Status)
		}
	}
	s.State, s.Deployment = plan.State, deployment(4)
	if plan := ComputePlan(s); plan.Inject != nil {
		t.Error("tried again")
	}
}

func TestEarlierReportersStayUntilTheNewOnesReport(t *testing.T) {
	host := []*corev1.Pod{apiPod("a", "1", onHost), apiPod("b", "2", onHost)}
	s := after(t, v1alpha1.ModeCompanionPod, pods(host...), reports(reportOf("a", "before"), reportOf("b", "before")))
	s.Target.Mode = v1alpha1.ModeDaemonSet
	stay := func(when string) {
		t.Helper()
		if plan := deletes(t, s, when, "", contract.Progressing); plan.State.Mode != v1alpha1.ModeCompanionPod {
			t.Errorf("%s: the mode is %s", when, plan.State.Mode)
		}
	}
	stay("at once")
	for _, node := range []string{"a", "b"} {
		pod := agent(nil)
		pod.SetName("pod-" + node)
		pod.SetUID(types.UID("new-" + node))
		pod.Object["spec"], pod.Object["status"] = map[string]any{"nodeName": node}, map[string]any{"phase": "Running"}
		s.Own = append(s.Own, pod)
	}
	stay("before the new ones report")
	s.Resource.Reports[0] = reportOf("a", "new-a")
	stay("before all new ones report")
	s.Resource.Reports[1] = reportOf("b", "new-b")
	s.Pods = append(s.Pods, apiPod("c", "3", onHost, revision("9")))
	stay("before all is known")
	s.Pods = s.Pods[:2]
	plan := ComputePlan(s)
	if strings.Count(names(plan.Delete), "Pod/kms-health-api") != 2 || plan.State.Mode != v1alpha1.ModeDaemonSet {
		t.Errorf("%s goes when the new report; %s", names(plan.Delete), plan.State.Mode)
	}
}

// The record must name the Role before it exists, so that a removal always finds it.
func TestRoleIsRecordedBeforeItIsApplied(t *testing.T) {
	s := fixture(t, v1alpha1.ModeCompanionPod, func(s *Snapshot) { s.Sets = nil })
	if plan := ComputePlan(s); plan.Anchor == nil || !plan.State.Role || names(plan.Apply) != "Role/kms-health-operator-api" {
		t.Errorf("records %v, %+v, applies %s", plan.Anchor, plan.State, names(plan.Apply))
	}
}

// A KMS v1 provider encrypts, but its health is unknown. The operator read the Secret of a revision before it was
// deleted, and keeps the plugins. A live configuration without plugins does not show that pods have none whose Secret
// was never read.
func TestPluginsAreTheOnesLastKnownOfThePodsRevision(t *testing.T) {
	type sets = map[string]encryptionconfig.Set
	deleted := encryptionconfig.Read(nil, v1alpha1.EncryptionConfig{})
	v1 := func(ids ...int) *encryptionconfig.Set {
		with := set(ids...)
		with.Config.Ignored = []string{"provider old of secrets is not probed"}
		return with
	}
	on := func(revisions ...string) (all []*corev1.Pod) {
		for i, r := range revisions {
			all = append(all, apiPod(string(rune('a'+i)), fmt.Sprint(i+1), revision(r)))
		}
		return all
	}
	known := func(live []int, r4 ...int) delivery.State {
		state := delivery.State{Mode: v1alpha1.ModeCompanionPod, Live: set(live...).Config.Plugins}
		if len(r4) > 0 {
			state.Revisions = map[string][]v1alpha1.Plugin{"4": set(r4...).Config.Plugins}
		}
		return state
	}
	notProbed := known([]int{1})
	notProbed.NotProbed = "provider old of secrets is not probed"
	for name, c := range map[string]struct {
		recorded delivery.State
		live     *encryptionconfig.Set // nil: it cannot be read
		sets     sets
		pods     []*corev1.Pod
		want     string // the reason, and what companions probe
	}{
		"nothing was ever read":              {delivery.State{}, nil, nil, on(""), "Progressing transient unrecorded"},
		"a garbled Secret, nothing recorded": {delivery.State{}, &encryptionconfig.Set{}, nil, on(""), "Progressing transient unrecorded"},
		"not read any more":                  {known([]int{1}), nil, nil, on(""), "AsExpected deletes a:1"},
		"a garbled Secret":                   {known([]int{1}), &encryptionconfig.Set{}, nil, on(""), "AsExpected deletes a:1"},
		"one of two revisions has none":      {known(nil), set(), sets{"4": *set(1), "5": *set()}, on("4", "5"), "AsExpected deletes a:1"},
		"no revision in use has any":         {known(nil, 1), set(), sets{"5": *set()}, on("5"), "Removing off deletes"},
		"the revision is being read":         {known([]int{1}, 1), set(), nil, on("5"), "Progressing transient"},
		"it was never read":                  {known(nil), set(1), sets{"5": {}}, on("5"), "AsExpected deletes a:1"},
		"it was never read, and live is off": {known([]int{1}), set(), sets{"5": {}}, on("5"), "Progressing transient"},
		"it has none, and live is off":       {known([]int{1}), set(), sets{"5": *set()}, on("5"), "Removing off deletes"},
		"its Secret was deleted":             {known([]int{1}, 2, 1), set(1), sets{"4": deleted}, on("4"), "AsExpected deletes a:2+1"},
		"the same, and live is off":          {known([]int{1}, 2, 1), set(), sets{"4": deleted}, on("4"), "AsExpected deletes a:2+1"},
		"a v1 provider alone":                {known(nil), v1(), nil, on("", ""), "Removing deletes"},
		"a v1 provider alone, without a pod": {known(nil), v1(), nil, nil, "ProviderNotProbed"},
		"a v1 provider beside a plugin":      {known(nil), v1(1), nil, on("", ""), "ProviderNotProbed deletes a:1 b:1"},
		"the same, not read any more":        {notProbed, nil, nil, on("", ""), "ProviderNotProbed deletes a:1 b:1"},
		"the same, a revision is not read":   {notProbed, set(1), sets{"7": {}}, on("7"), "ProviderNotProbed deletes a:1"},
	} {
		s := fixture(t, v1alpha1.ModeCompanionPod, pods(c.pods...))
		if s.State, s.Sets = c.recorded, nil; c.live != nil {
			s.Sets = sets{liveRevision: *c.live}
			maps.Copy(s.Sets, c.sets)
		}
		if s.State.Role = true; len(c.pods) > 0 {
			s.Own = objectList{ownObject("ConfigMap", s.Namespace)} // which nothing needs
		}
		plan := ComputePlan(s)
		got := string(plan.Status.Reason)
		for _, is := range []struct {
			what string
			so   bool
		}{{" transient", plan.Status.Message == ""}, {" off", plan.Off}, {" unrecorded", plan.Anchor == nil},
			{" deletes", len(plan.Delete) > 0}} {
			if is.so {
				got += is.what
			}
		}
		for _, w := range workloads(plan) {
			got += " " + nodeOf(w) + ":" + keyIDs(t, w)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRevisionIsANumber(t *testing.T) {
	for name, c := range map[string]struct {
		secret, label, want string
		reads               bool
	}{
		"of the Secret":          {"encryption-config-7", "5", "7", true},
		"the live Secret":        {"encryption-config", "5", "", true},
		"of the label":           {"", "5", "5", true},
		"no number in the name":  {"encryption-config-backup", "5", "5", false},
		"no number in the label": {"", "canary", "", true},
		"no revision at all":     {"serving-cert", "", "", true},
		"none":                   {"", "", "", true},
	} {
		pod := apiPod("a", "1", revision(c.label), func(p *corev1.Pod) {
			if c.secret != "" {
				for _, name := range []string{"etcd-client", c.secret} {
					p.Spec.Volumes = append(p.Spec.Volumes,
						corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
				}
			}
		})
		got, reads := delivery.RevisionOf("encryption-config", &pod.Spec, pod.Labels)
		if got != c.want || reads != c.reads {
			t.Errorf("%s: %q, reads it: %t", name, got, reads)
		}
	}
}

// OpenShift's authentication operator creates these pods with external OIDC
// (bindata/oauth-apiserver/externaloidc-deploy.yaml, and the label in syncExternalOIDCDeployment). Its revision
// controller still copies the earlier encryption config.
func TestPodThatReadsNoEncryptionConfigNeedsNoReporter(t *testing.T) {
	withoutStorage := apiPod("a", "1", revision("5"), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "serving-cert",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "serving-cert"}}}}
		p.Spec.Containers[0].VolumeMounts = nil
	})
	s := fixture(t, v1alpha1.ModeAuto, pods(withoutStorage))
	s.Sets["5"] = *set(1)
	if plan := ComputePlan(s); len(workloads(plan)) > 0 || plan.Status.Reason != contract.NoPods {
		t.Errorf("%s made; %+v", names(workloads(plan)), plan.Status)
	}
	if got := s.Revisions(); len(got) > 0 {
		t.Errorf("the Secrets of revisions %q are read", got)
	}
}

func TestUnfinishedSwitchIntoTheTargetsNamespaceIsRemoved(t *testing.T) {
	s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1", onHost)))
	s.Target.Mode, s.Target.Deployment, s.Deployment = v1alpha1.ModeSidecar, "apiserver", deployment(1)
	begun := ComputePlan(s)
	if begun.State.Mode != v1alpha1.ModeCompanionPod || !begun.State.InTarget {
		t.Fatalf("%+v", begun.State)
	}
	delivered(begun)(s)
	s.Target.Mode, s.Target.Deployment, s.Deployment = v1alpha1.ModeCompanionPod, "", nil
	back := ComputePlan(s)
	if gone := names(back.Delete); !strings.Contains(gone, "ConfigMap/kms-health-reporter-api-") || !back.State.InTarget ||
		!strings.Contains(gone, "ServiceAccount/kms-health-reporter-api") {
		t.Errorf("%s goes: %+v", gone, back.State)
	}
	s.State = back.State
	s.Pods = append(s.Pods, apiPod("b", "2", onHost, withToken))
	if back := ComputePlan(s); strings.Contains(names(back.Delete), "ServiceAccount/kms-health-reporter-api") {
		t.Errorf("a pod mounts the token, and %s goes", names(back.Delete))
	}
	s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool {
		return o.GetNamespace() == "ns" && o.GetKind() != "Role"
	})
	if done := ComputePlan(s); done.State.InTarget {
		t.Error("it is still looked after when nothing is left")
	}
}

// When the write key changes, running containers may still write with the former one, so they are recorded. They stay
// recorded without a pod that shows them. Deleting a mirror pod restarts nothing, and the kubelet creates it again, at
// first without a status (tryReconcileMirrorPods).
func TestContainersThatRanWhenTheWriteKeyChangedHaveNotLoadedIt(t *testing.T) {
	given := func(s *Snapshot) { s.Target.Plugins = set(1).Config.Plugins }
	recorded := func(ids ...int) func(*Snapshot) {
		return func(s *Snapshot) { s.State = delivery.State{Live: set(ids...).Config.Plugins} }
	}
	unreadable := func(s *Snapshot) { s.Sets = nil }
	seen := func(d time.Duration) func(*Snapshot) { return func(s *Snapshot) { s.LiveSeen = d } }
	before := func(s *Snapshot) { s.State.NotLoaded = []string{"c-0", "c-a"} }
	ended := func(s *Snapshot) { s.Pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{} }
	deleted := func(s *Snapshot) { s.Pods = nil }
	madeAgain := func(s *Snapshot) { s.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending} }
	pod := func(since time.Duration) func(*Snapshot) {
		return func(s *Snapshot) { s.Seen = map[types.UID]time.Duration{s.Pods[0].UID: since} }
	}
	earlier := func(s *Snapshot) {
		s.Seen = map[types.UID]time.Duration{s.Pods[0].UID: s.LiveSeen, "c-b": s.LiveSeen}
	}
	after := func(id string) func(*Snapshot) {
		return func(s *Snapshot) {
			s.Pods[0].Status.ContainerStatuses[0].LastTerminationState.Terminated =
				&corev1.ContainerStateTerminated{ContainerID: id}
		}
	}
	another := func(s *Snapshot) { s.Pods[0].Status.ContainerStatuses[0].ContainerID = "c-b" }
	at := func(endpoint string) func(*Snapshot) {
		return func(s *Snapshot) {
			s.State.Live = slices.Clone(s.State.Live)
			s.State.Live[0].Endpoint = endpoint
		}
	}
	moved := at("unix:///elsewhere/kms-1.sock")
	respelled := at(strings.Replace(set(1).Config.Plugins[0].Endpoint, "/kms-", "/./kms-", 1))
	mixed := func(s *Snapshot) {
		live := s.Sets[liveRevision]
		live.Config.Mixed = "secrets by aescbc"
		s.Sets[liveRevision] = live
	}
	for name, c := range map[string]struct {
		change []func(*Snapshot)
		want   string
	}{
		"a Secret that is seen first":           {nil, ""},
		"a Secret with another key":             {[]func(*Snapshot){recorded(2, 1)}, "c-a"},
		"a Secret with another reader":          {[]func(*Snapshot){recorded(1, 2)}, ""},
		"another key for some resources":        {[]func(*Snapshot){recorded(1), mixed}, "c-a"},
		"a Secret that cannot be read any more": {[]func(*Snapshot){recorded(2), before, unreadable}, "c-0 c-a"},
		"plugins that are seen first":           {[]func(*Snapshot){given}, ""},
		"plugins with another key":              {[]func(*Snapshot){recorded(2), given}, "c-a"},
		"plugins with another reader":           {[]func(*Snapshot){recorded(1, 2), given}, ""},
		"a Secret with another socket":          {[]func(*Snapshot){recorded(1), moved}, "c-a"},
		"plugins with another socket":           {[]func(*Snapshot){recorded(1), moved, given}, "c-a"},
		"plugins with the socket spelled else":  {[]func(*Snapshot){recorded(1), respelled, given}, ""},
		"nothing changes any more":              {[]func(*Snapshot){recorded(1), before}, "c-0 c-a"},
		"another key after the container ended": {[]func(*Snapshot){recorded(2, 1), before, ended}, "c-0 c-a"},
		"another key without the mirror pod":    {[]func(*Snapshot){recorded(2, 1), before, deleted}, "c-0 c-a"},
		"the container ended":                   {[]func(*Snapshot){recorded(1), before, ended}, "c-0 c-a"},
		"the mirror pod is deleted":             {[]func(*Snapshot){recorded(1), before, deleted}, "c-0 c-a"},
		"the mirror pod has no status yet":      {[]func(*Snapshot){recorded(1), before, madeAgain}, "c-0 c-a"},
		"another container":                     {[]func(*Snapshot){recorded(1), before, another, seen(2), pod(1)}, "c-0 c-a"},
		"started again at once":                 {[]func(*Snapshot){recorded(1), before, another, seen(mountDelay - 1), after("c-a")}, "c-0 c-a c-b"},
		"the same, not seen in between":         {[]func(*Snapshot){recorded(1), before, another, seen(2), pod(3), after("c-9")}, "c-0 c-a c-b"},
		"started again before this process":     {[]func(*Snapshot){recorded(1), before, another, seen(1), earlier, after("c-1")}, "c-0 c-a"},
		"the same, after one not loaded":        {[]func(*Snapshot){recorded(1), before, another, seen(1), earlier, after("c-a")}, "c-0 c-a c-b"},
		"started again after this process":      {[]func(*Snapshot){recorded(1), before, another, seen(1), pod(1), after("c-1")}, "c-0 c-a"},
		"started again after a while":           {[]func(*Snapshot){recorded(1), before, another, seen(mountDelay), pod(time.Hour), after("c-a")}, "c-0 c-a"},
		"first started in a pod from before":    {[]func(*Snapshot){recorded(1), seen(1), pod(2)}, "c-a"},
		"first started in a pod of now":         {[]func(*Snapshot){recorded(1), seen(2), pod(1)}, ""},
	} {
		s := fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1", servedBy("c-a"))))
		for _, change := range c.change {
			change(s)
		}
		plan := ComputePlan(s)
		if got := strings.Join(plan.State.NotLoaded, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		s.State, s.LiveSeen = plan.State, time.Hour // the next sync
		if got := strings.Join(ComputePlan(s).State.NotLoaded, " "); got != c.want {
			t.Errorf("%s, synced again: %q, want %q", name, got, c.want)
		}
	}
}

// servedBy makes the API server's container run with a container ID.
func servedBy(id string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, ContainerID: id,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
}

// Until the rollout ends, an API server may use a plugin, or a socket, that the live set no longer contains.
func TestAgentsProbeThePluginsOfAllRunningPods(t *testing.T) {
	moved := set(2, 1)
	moved.Config.Plugins[1].Endpoint = "unix:///var/run/kmsplugin/moved.sock"
	other := set(1)
	other.Config.Plugins[0].KeyID = "other"
	elsewhere := set(3, 2)
	elsewhere.Config.Plugins[0].Endpoint = "unix:///run/kms/3.sock"
	many := make([]int, 20)
	for i := range many {
		many[i] = 20 - i
	}
	for name, c := range map[string]struct {
		live, first, second *encryptionconfig.Set // the pods' sets
		want                string
	}{
		"a key is dropped":                    {set(2), set(2), set(2, 1), "2+1"},
		"a key is added":                      {set(2, 1), set(2, 1), set(1), "2+1"},
		"KMS is turned off":                   {set(), set(1), set(), "1"},
		"the live set first":                  {set(3), set(2, 1), set(1), "3+2+1"},
		"as many as a file can have":          {set(many...), set(1), set(2), "20+19+18+17+16+15+14+13+12+11+10+9+8+7+6+5"},
		"a socket moves, in the live set":     {moved, set(2, 1), set(2, 1), "2+1"},
		"a socket that most pods have moved":  {set(2, 1), moved, moved, "2+1 moved.sock"},
		"a socket that half of them have":     {set(2, 1), set(2, 1), moved, "2+1"},
		"a socket gets another key ID":        {other, set(1), set(1), "1"},
		"a folder that no pod mounts":         {elsewhere, set(2), set(2), "2"},
		"a socket gets a key ID, at one node": {other, set(1), other, "other"},
	} {
		s := fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1", onHost, revision("8")), apiPod("b", "2", onHost, revision("7"))))
		s.Sets = map[string]encryptionconfig.Set{liveRevision: *c.live, "8": *c.first, "7": *c.second}
		files := templateAnnotations(ComputePlan(s))
		got := keyIDs(t, agent(files))
		if strings.Contains(files[contract.ConfigAnnotation], "moved.sock") {
			got += " moved.sock"
		}
		if got != c.want {
			t.Errorf("%s: agents probe %s, want %s", name, got, c.want)
		}
	}
}
