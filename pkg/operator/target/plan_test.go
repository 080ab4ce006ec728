package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryption"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/pkg/sidecar"
)

const kinds = "Pod DaemonSet ConfigMap ServiceAccount ClusterRoleBinding ClusterRole Role"

// world is a target with everything known and nothing there.
func world(t *testing.T, delivery v1alpha1.Delivery, more ...func(*World)) *World {
	t.Helper()
	extra := ""
	if delivery == v1alpha1.DeliveryDeployment {
		extra = "\n  deployment: apiserver"
	}
	config, err := v1alpha1.DecodeOperator([]byte(`apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
image: reporter:1
targets:
- name: api
  resource: kubeapiservers
  namespace: ns
  podSelector: {app: api}
  container: api
  delivery: ` + string(delivery) + extra))
	if err != nil {
		t.Fatal(err)
	}
	w := &World{
		Now: time.Unix(1e9, 0), KubeletRoot: sockets.KubeletRoot, OwnKnown: map[string]bool{},
		Pods: []*corev1.Pod{}, Encryption: &Encryption{Live: set(1)},
	}
	w.Config, w.Target, w.Namespace = config, &config.Targets[0], "kms-health"
	w.Owner = &render.Owner{Name: "kms-health-reporter-api", UID: "owner"}
	for _, kind := range strings.Fields(kinds) {
		w.OwnKnown[kind] = true
	}
	for _, m := range more {
		m(w)
	}
	return w
}

// set is a plugin set: the first writes.
func set(ids ...int) encryption.Config {
	c := encryption.Config{Plugins: []v1alpha1.Plugin{}}
	for i, id := range ids {
		role := v1alpha1.RoleRead
		if i == 0 {
			role = v1alpha1.RoleWrite
		}
		c.Plugins = append(c.Plugins, v1alpha1.Plugin{
			KeyID: fmt.Sprint(id), Endpoint: fmt.Sprintf("unix:///var/run/kmsplugin/kms-%d.sock", id), Role: role,
			Timeout: metav1.Duration{Duration: 3 * time.Second},
		})
	}
	return c
}

// apiPod is an API server's pod. Its sockets are in an emptyDir, or on the host.
func apiPod(node, uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "api-" + node + "-" + uid, Namespace: "ns", UID: types.UID(uid), Labels: map[string]string{"app": "api"}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "api", Image: "api", VolumeMounts: []corev1.VolumeMount{{Name: "sockets", MountPath: "/var/run/kmsplugin"}}}},
			Volumes:    []corev1.Volume{{Name: "sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func onHost(p *corev1.Pod) {
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/kms"}}
}

func revision(r string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["revision"] = r }
}

func pods(all ...*corev1.Pod) func(*World) { return func(w *World) { w.Pods = all } }

// there puts what a plan made into a world, running.
func there(t *testing.T, plan *Plan) func(*World) {
	t.Helper()
	return func(w *World) {
		objects := slices.Concat(plan.Apply, plan.Workloads)
		if plan.Anchor != nil {
			objects = append(objects, plan.Anchor)
		}
		for _, o := range objects {
			o := o.DeepCopy()
			if o.GetKind() == "Pod" {
				_ = unstructured.SetNestedField(o.Object, "Running", "status", "phase")
				o.SetCreationTimestamp(metav1.NewTime(w.Now))
			}
			w.Own = append(w.Own, o)
		}
		w.State = plan.State
	}
}

func mustMake(t *testing.T, w *World) *Plan {
	t.Helper()
	p, err := Make(w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// names are an object's kind and name each, sorted.
func names(objects []*unstructured.Unstructured) string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetKind()+"/"+o.GetName())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func keyIDs(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	file, ok := o.GetAnnotations()[render.ConfigAnnotation]
	if !ok {
		file, _, _ = unstructured.NestedString(o.Object, "data", "config.yaml")
	}
	c, err := v1alpha1.DecodeReporter([]byte(file))
	if err != nil {
		t.Fatalf("%s: %v\n%s", o.GetName(), err, file)
	}
	var ids []string
	for _, p := range c.Plugins {
		ids = append(ids, p.KeyID)
	}
	return strings.Join(ids, "+")
}

func TestAutoChoosesByWhereTheSocketsAre(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*World)
		delivery v1alpha1.Delivery
		reason   string
	}{
		"no pods":                      {func(*World) {}, "", ReasonAwaitingPods},
		"no pods now":                  {func(w *World) { w.State.Delivery = v1alpha1.DeliveryCompanion }, v1alpha1.DeliveryCompanion, ReasonAwaitingPods},
		"in pods":                      {pods(apiPod("a", "1"), apiPod("b", "2")), v1alpha1.DeliveryCompanion, ReasonSocketsInPods},
		"on the host":                  {pods(apiPod("a", "1", onHost), apiPod("b", "2", onHost)), v1alpha1.DeliveryDaemonSet, ReasonSocketsOnHost},
		"on the host and in pods":      {pods(apiPod("a", "1", onHost), apiPod("b", "2")), v1alpha1.DeliveryCompanion, ReasonSocketsInPods},
		"another reporter in the pods": {pods(apiPod("a", "1", func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "kms-health-reporter"}} })), "", ReasonForeignReporter},
		"another make's fresh reports": {func(w *World) {
			w.Pods = []*corev1.Pod{apiPod("a", "1")}
			w.Resource = foreign(w.Now.Add(-time.Minute))
		}, "", ReasonForeignReporter},
		"another make's old reports": {func(w *World) {
			w.Pods = []*corev1.Pod{apiPod("a", "1")}
			w.Resource = foreign(w.Now.Add(-time.Hour))
		}, v1alpha1.DeliveryCompanion, ReasonSocketsInPods},
	} {
		w := world(t, v1alpha1.DeliveryAuto, c.change)
		p := &planner{World: w, plan: &Plan{}, state: w.State}
		p.remember()
		p.findSites()
		got := w.choose(p.sites)
		if got.Delivery != c.delivery || got.Reason != c.reason || got.Message == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCompanionStandsBesideEachPodWithThatPodsPlugins(t *testing.T) {
	w := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1", revision("4")), apiPod("b", "2", revision("5"))))
	w.Encryption = &Encryption{Live: set(2, 1), Revisions: map[string]encryption.Config{"4": set(1), "5": set(2, 1)}}
	plan := mustMake(t, w)
	if len(plan.Workloads) != 2 {
		t.Fatalf("%s", names(plan.Workloads))
	}
	for i, want := range []struct{ node, uid, ids string }{{"a", "1", "1"}, {"b", "2", "2+1"}} {
		pod := plan.Workloads[i]
		if nodeOf(pod) != want.node || pod.GetAnnotations()[render.BesideAnnotation] != want.uid || keyIDs(t, pod) != want.ids {
			t.Errorf("%s on %s beside %s with %s", pod.GetName(), nodeOf(pod), pod.GetAnnotations()[render.BesideAnnotation], keyIDs(t, pod))
		}
		typed, err := podOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		path := "/var/lib/kubelet/pods/" + want.uid + "/volumes/kubernetes.io~empty-dir/sockets"
		if !slices.ContainsFunc(typed.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == path }) {
			t.Errorf("%s does not mount %s", pod.GetName(), path)
		}
	}
	if len(plan.Delete) > 0 || plan.Status.Reason != ReasonProgressing {
		t.Errorf("%s; %+v", names(plan.Delete), plan.Status)
	}
	there(t, plan)(w)
	if plan := mustMake(t, w); plan.Status.Status != "True" {
		t.Errorf("%+v", plan.Status)
	}
	_ = unstructured.SetNestedField(w.own("Pod")[0].Object, "Pending", "status", "phase")
	_ = unstructured.SetNestedSlice(w.own("Pod")[0].Object, []any{map[string]any{"name": "kms-health", "state": map[string]any{"waiting": map[string]any{"reason": "ImagePullBackOff", "message": "not found"}}}}, "status", "containerStatuses")
	if s := mustMake(t, w).Status; s.Reason != "ReporterNotRunning" || !strings.Contains(s.Message, "ImagePullBackOff: not found") || !strings.Contains(s.Message, "on node a") {
		t.Errorf("%+v", s)
	}
}

func TestCompanionIsReplacedWithItsPodAndForItsContainerOnly(t *testing.T) {
	first := mustMake(t, world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1"))))
	old := first.Workloads[0].GetName()

	live := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), there(t, first), func(w *World) { w.Config.Probe.Interval.Duration = time.Minute })
	plan := mustMake(t, live)
	if plan.Workloads[0].GetName() != old || len(plan.Delete) > 0 {
		t.Error("an interval replaced a companion")
	}
	if plan.Workloads[0].GetAnnotations()[render.ConfigAnnotation] == first.Workloads[0].GetAnnotations()[render.ConfigAnnotation] {
		t.Error("the interval is not in the file")
	}

	always := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), there(t, first), func(w *World) { w.Config.Rollout = v1alpha1.RolloutAlways })
	if plan := mustMake(t, always); plan.Workloads[0].GetName() == old {
		t.Error("with Always, the file is no part of what a companion is replaced for")
	}

	image := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), there(t, first), func(w *World) { w.Config.Image = "reporter:2" })
	plan = mustMake(t, image)
	if plan.Workloads[0].GetName() == old || len(plan.Delete) > 0 {
		t.Errorf("a new image: %s made, %s deleted before the new one runs", names(plan.Workloads), names(plan.Delete))
	}
	there(t, plan)(image)
	if plan := mustMake(t, image); names(plan.Delete) != "Pod/"+old {
		t.Errorf("when the new one runs, %q goes", names(plan.Delete))
	}

	replaced := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "2")), there(t, first))
	if plan := mustMake(t, replaced); names(plan.Delete) != "Pod/"+old {
		t.Errorf("with its pod gone, %q goes", names(plan.Delete))
	}
}

func TestDaemonSetServesTheHostsFolders(t *testing.T) {
	plan := mustMake(t, world(t, v1alpha1.DeliveryDaemonSet, pods(apiPod("a", "1", onHost), apiPod("b", "2", onHost))))
	if got, want := names(slices.Concat(plan.Apply, plan.Workloads)), "ClusterRoleBinding/kms-health-reporter-api ConfigMap/kms-health-reporter-api DaemonSet/kms-health-reporter-api Role/kms-health-operator-api ServiceAccount/kms-health-reporter-api"; got != want {
		t.Errorf("%s", got)
	}
	ds := &appsv1.DaemonSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(plan.Workloads[0].Object, ds); err != nil {
		t.Fatal(err)
	}
	if v := ds.Spec.Template.Spec.Volumes; !slices.ContainsFunc(v, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == "/run/kms" }) {
		t.Errorf("%+v", v)
	}
	plan = mustMake(t, world(t, v1alpha1.DeliveryDaemonSet, pods(apiPod("a", "1"))))
	if plan.Status.Reason != "SocketVolumeMissing" || !strings.Contains(plan.Status.Message, "ns/api-a-1") {
		t.Errorf("sockets in a pod: %+v", plan.Status)
	}
}

func TestFileOfAPluginSetStaysAsLongAsAPodMountsIt(t *testing.T) {
	first := mustMake(t, world(t, v1alpha1.DeliveryExternal, pods(apiPod("a", "1"))))
	var old string
	for _, o := range first.Apply {
		if o.GetKind() == "ConfigMap" {
			old = o.GetName()
		}
	}
	mounting := apiPod("a", "1", func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: old}}}})
	})
	w := world(t, v1alpha1.DeliveryExternal, pods(mounting), there(t, first), func(w *World) {
		w.Encryption.Live = set(2, 1)
		w.Config.Probe.Interval.Duration = time.Minute
	})
	plan := mustMake(t, w)
	if names(plan.Delete) != "" {
		t.Errorf("%s goes while a pod mounts it", names(plan.Delete))
	}
	for _, o := range plan.Apply {
		if o.GetKind() != "ConfigMap" {
			continue
		}
		file, _, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
		if !strings.Contains(file, "interval: 1m0s") {
			t.Errorf("%s does not follow the interval:\n%s", o.GetName(), file)
		}
		if want := map[bool]string{true: "1", false: "2+1"}[o.GetName() == old]; keyIDs(t, o) != want {
			t.Errorf("%s names %s", o.GetName(), keyIDs(t, o))
		}
	}
	w.Pods = []*corev1.Pod{apiPod("a", "2")}
	if plan := mustMake(t, w); names(plan.Delete) != "ConfigMap/"+old {
		t.Errorf("%q goes when no pod mounts it", names(plan.Delete))
	}
}

func deployment(generation int64) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "apiserver", Namespace: "ns", UID: "d", Generation: generation}}
	d.Spec.Template.Spec = apiPod("", "").Spec
	d.Spec.Template.Labels = map[string]string{"app": "api"}
	return d
}

func TestDeploymentIsPatchedOnlyWithAProvenImage(t *testing.T) {
	w := world(t, v1alpha1.DeliveryDeployment, pods(apiPod("a", "1"), apiPod("b", "2")), func(w *World) { w.Deployment = deployment(1) })
	plan := mustMake(t, w)
	if plan.Inject != nil || len(plan.Workloads) != 2 || plan.Status.Status != "False" {
		t.Fatalf("injected without a proof: %s; %+v", names(plan.Workloads), plan.Status)
	}
	there(t, plan)(w)
	for _, o := range w.own("Pod") {
		phase := "Succeeded"
		if nodeOf(o) == "b" {
			phase = "Pending"
			_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"state": map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "not found"}}}}, "status", "containerStatuses")
		}
		_ = unstructured.SetNestedField(o.Object, phase, "status", "phase")
	}
	plan = mustMake(t, w)
	if plan.Inject != nil || plan.Status.Reason != "ImageNotProven" || !strings.Contains(plan.Status.Message, "node b") {
		t.Errorf("%+v", plan.Status)
	}
	for _, o := range w.own("Pod") {
		_ = unstructured.SetNestedField(o.Object, "Succeeded", "status", "phase")
	}
	plan = mustMake(t, w)
	if plan.Inject == nil || len(plan.Workloads) > 0 || !strings.HasPrefix(names(plan.Delete), "Pod/kms-health-image") {
		t.Errorf("%v; %s stay, %s go; %+v", plan.Inject, names(plan.Workloads), names(plan.Delete), plan.Status)
	}
}

func TestRevertByAnOwnerIsLeftAlone(t *testing.T) {
	w := world(t, v1alpha1.DeliveryDeployment, pods(apiPod("a", "1")), func(w *World) {
		w.Deployment = deployment(1)
		w.State.Proven = w.Config.Image
	})
	plan := mustMake(t, w)
	if plan.Inject == nil {
		t.Fatalf("%+v", plan.Status)
	}
	// What came of it, as the API server shows it.
	injected := deployment(2)
	if err := sidecar.Inject(&injected.Spec.Template.ObjectMeta, &injected.Spec.Template.Spec, plan.Inject.Options); err != nil {
		t.Fatal(err)
	}
	w.State = plan.State
	w.State.Injected = &Injected{Deployment: "apiserver", UID: "d", Generation: 2, Seen: InjectionSeen(injected), Sent: plan.State.Intended}

	// An injection whose end was not remembered: killed in between, say.
	known := w.State.Injected
	w.State.Injected = &Injected{Deployment: "apiserver", UID: "d", Generation: 1, Seen: "as it was before", Sent: "something else"}
	w.Deployment = injected
	if plan := mustMake(t, w); plan.Inject == nil || plan.State.Reverted {
		t.Errorf("our own change counts as a revert: %+v", plan.Status)
	}
	w.State.Injected = known

	w.Deployment = injected
	if plan := mustMake(t, w); plan.Inject == nil {
		t.Errorf("what is in place counts as reverted: %+v", plan.Status)
	}
	scaled := injected.DeepCopy()
	scaled.Generation, scaled.Spec.Paused = 3, true
	w.Deployment = scaled
	if plan := mustMake(t, w); plan.Inject == nil {
		t.Errorf("another change of the owner counts as a revert: %+v", plan.Status)
	}
	w.Deployment = deployment(1) // an old view of it
	if plan := mustMake(t, w); plan.Inject == nil {
		t.Errorf("an old view counts as a revert: %+v", plan.Status)
	}
	w.Deployment = deployment(3)
	plan = mustMake(t, w)
	if plan.Inject != nil || plan.Status.Reason != "InjectionReverted" || !plan.State.Reverted {
		t.Errorf("a revert: %+v", plan.Status)
	}
	w.State = plan.State
	w.Deployment = deployment(4)
	if plan := mustMake(t, w); plan.Inject != nil {
		t.Error("tried again")
	}
}

func TestNewDeliveryReportsBeforeTheOldGoes(t *testing.T) {
	host := []*corev1.Pod{apiPod("a", "1", onHost), apiPod("b", "2", onHost)}
	first := mustMake(t, world(t, v1alpha1.DeliveryCompanion, pods(host...)))
	w := world(t, v1alpha1.DeliveryDaemonSet, pods(host...), there(t, first))
	w.Resource = &rollup.Resource{Reports: []rollup.Report{
		{Node: "a", Form: rollup.FormCondition, Since: w.Now.Add(-time.Hour)},
		{Node: "b", Form: rollup.FormCondition, Since: w.Now.Add(-time.Hour)},
	}}
	plan := mustMake(t, w)
	if len(plan.Delete) > 0 || plan.Status.Reason != ReasonProgressing || plan.State.Delivery != v1alpha1.DeliveryCompanion {
		t.Fatalf("%s goes at once; %+v", names(plan.Delete), plan.Status)
	}
	agents := func(w *World) {
		for _, node := range []string{"a", "b"} {
			agent := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nodeName": node}, "status": map[string]any{"phase": "Running"}}}
			agent.SetName("agent-" + node)
			agent.SetLabels(map[string]string{render.DeliveryLabel: "DaemonSet", render.TargetLabel: "api"})
			agent.SetCreationTimestamp(metav1.NewTime(w.Now))
			w.Own = append(w.Own, agent)
		}
	}
	agents(w)
	if plan := mustMake(t, w); len(plan.Delete) > 0 {
		t.Errorf("%s goes before the new reports", names(plan.Delete))
	}
	w.Resource.Reports[0].Since = w.Now.Add(time.Second)
	if plan := mustMake(t, w); len(plan.Delete) > 0 {
		t.Errorf("%s goes before all of the new report", names(plan.Delete))
	}
	w.Resource.Reports[1].Since = w.Now.Add(time.Second)
	w.Encryption.Pending = map[string]bool{"9": true}
	w.Pods = append(w.Pods, apiPod("c", "3", onHost, revision("9")))
	if plan := mustMake(t, w); len(plan.Delete) > 0 {
		t.Errorf("%s goes before all is known", names(plan.Delete))
	}
	w.Pods = w.Pods[:2]
	plan = mustMake(t, w)
	if strings.Count(names(plan.Delete), "Pod/kms-health-api") != 2 || plan.State.Delivery != v1alpha1.DeliveryDaemonSet {
		t.Errorf("%s goes when the new report; %s", names(plan.Delete), plan.State.Delivery)
	}
}

func TestTakingBackGoesStepByStep(t *testing.T) {
	first := mustMake(t, world(t, v1alpha1.DeliveryDaemonSet, pods(apiPod("a", "1", onHost))))
	w := world(t, v1alpha1.DeliveryDaemonSet, there(t, first), func(w *World) { w.Encryption.Live = set() })
	for _, want := range []string{
		"DaemonSet/kms-health-reporter-api",
		"ConfigMap/kms-health-reporter-api",
		"ClusterRoleBinding/kms-health-reporter-api ServiceAccount/kms-health-reporter-api",
		"ClusterRole/kms-health-reporter-api",
		"",
	} {
		plan := mustMake(t, w)
		if got := names(plan.Delete); got != want {
			t.Fatalf("%q goes, must be %q", got, want)
		}
		if plan.Gone != (want == "" || strings.HasPrefix(want, "ClusterRole/")) {
			t.Errorf("%q: gone is %v", want, plan.Gone)
		}
		w.Own = slices.DeleteFunc(w.Own, func(o *unstructured.Unstructured) bool {
			return slices.ContainsFunc(plan.Delete, func(d *unstructured.Unstructured) bool { return id(d) == id(o) })
		})
		w.State = plan.State
	}
	if names(w.Own) != "Role/kms-health-operator-api" {
		t.Errorf("%s stays", names(w.Own))
	}
	w.Going = true
	if plan := mustMake(t, w); names(plan.Delete) != "Role/kms-health-operator-api" {
		t.Errorf("%q goes with the target", names(plan.Delete))
	}
}

func TestWhatIsNotKnownChangesNothing(t *testing.T) {
	first := mustMake(t, world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1"))))
	for name, change := range map[string]func(*World){
		"pods":                              func(w *World) { w.Pods = nil },
		"Secret, and none before":           func(w *World) { w.Encryption = nil; w.State.Live = nil },
		"a garbled Secret, and none before": func(w *World) { w.Encryption = &Encryption{Problem: "not YAML"}; w.State.Live = nil },
	} {
		plan := mustMake(t, world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), there(t, first), change))
		made := slices.DeleteFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Role" }) // to read the Secret by
		if len(plan.Delete)+len(plan.Workloads)+len(made) > 0 || plan.Status.Status != "Unknown" {
			t.Errorf("%s: %s and %s are made, %s goes; %+v", name, names(plan.Apply), names(plan.Workloads), names(plan.Delete), plan.Status)
		}
	}
	for name, change := range map[string]func(*World){
		"Secret":           func(w *World) { w.Encryption = nil },
		"a garbled Secret": func(w *World) { w.Encryption = &Encryption{Problem: "not YAML"} },
	} {
		plan := mustMake(t, world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "2")), there(t, first), change))
		if len(plan.Workloads) != 1 || keyIDs(t, plan.Workloads[0]) != "1" {
			t.Errorf("%s: what was known last does not serve a new pod: %s", name, names(plan.Workloads))
		}
	}
}

func TestKMSIsOffOnlyWhenNoDeployedConfigNamesAPlugin(t *testing.T) {
	w := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1", revision("4")), apiPod("b", "2", revision("5"))))
	w.Encryption = &Encryption{Live: set(), Revisions: map[string]encryption.Config{"4": set(1), "5": set()}}
	plan := mustMake(t, w)
	if len(plan.Workloads) != 1 || nodeOf(plan.Workloads[0]) != "a" {
		t.Errorf("%s; %+v", names(plan.Workloads), plan.Status)
	}
	there(t, plan)(w)
	w.Pods = w.Pods[1:]
	if plan := mustMake(t, w); !strings.HasPrefix(names(plan.Delete), "Pod/") || len(plan.Workloads) > 0 {
		t.Errorf("%s stays, %s goes; %+v", names(plan.Workloads), names(plan.Delete), plan.Status)
	}
}

func TestSocketThatNoVolumeHoldsIsTold(t *testing.T) {
	w := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1", func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = nil })))
	plan := mustMake(t, w)
	for _, part := range []string{"api-a-1", `"api"`, "/var/run/kmsplugin"} {
		if !strings.Contains(plan.Status.Message, part) {
			t.Errorf("%+v does not name %s", plan.Status, part)
		}
	}
	if plan.Status.Reason != "SocketVolumeMissing" {
		t.Errorf("%+v", plan.Status)
	}
}

func TestPodWhosePluginsAreAboutToBeReadIsWaitedFor(t *testing.T) {
	first := mustMake(t, world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1", revision("4")))))
	w := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "2", revision("5"))), there(t, first))
	w.Encryption = &Encryption{Live: set(), Pending: map[string]bool{"5": true}}
	plan := mustMake(t, w)
	if len(plan.Workloads) > 0 || plan.Gone || len(plan.Delete) > 1 || plan.Status.Message != "" {
		t.Errorf("%s made, %s goes; %+v", names(plan.Workloads), names(plan.Delete), plan.Status)
	}
}

func TestFileThatSomebodyBrokeStaysWhileAPodMountsIt(t *testing.T) {
	first := mustMake(t, world(t, v1alpha1.DeliveryExternal, pods(apiPod("a", "1"))))
	w := world(t, v1alpha1.DeliveryExternal, there(t, first), func(w *World) { w.Encryption.Live = set(2) })
	for _, o := range w.own("ConfigMap") {
		_ = unstructured.SetNestedField(o.Object, "broken", "data", "config.yaml")
		w.Pods = []*corev1.Pod{apiPod("a", "1", func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: o.GetName()}}}})
		})}
	}
	if plan := mustMake(t, w); len(plan.Delete) > 0 {
		t.Errorf("%s goes", names(plan.Delete))
	}
}

func TestTimeoutOfAPluginIsAtMostTheInterval(t *testing.T) {
	w := world(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")))
	w.Config.Probe.Interval.Duration = time.Second
	if got := keyIDs(t, mustMake(t, w).Workloads[0]); got != "1" { // decoding checks the timeout
		t.Error(got)
	}
}

func TestRevisionIsANumber(t *testing.T) {
	for name, c := range map[string]struct {
		secret, label, want string
	}{
		"of the Secret":          {"encryption-config-7", "5", "7"},
		"the live Secret":        {"encryption-config", "5", ""},
		"of the label":           {"", "5", "5"},
		"no number in the name":  {"encryption-config-backup", "5", "5"},
		"no number in the label": {"", "canary", ""},
		"none":                   {"", "", ""},
	} {
		pod := apiPod("a", "1", revision(c.label), func(p *corev1.Pod) {
			if c.secret != "" {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: c.secret}}})
			}
		})
		if got := RevisionOf("encryption-config", &pod.Spec, pod.Labels); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWhatWasBegunInTheTargetsNamespaceIsTakenBack(t *testing.T) {
	host := []*corev1.Pod{apiPod("a", "1", onHost)}
	first := mustMake(t, world(t, v1alpha1.DeliveryCompanion, pods(host...)))
	begun := world(t, v1alpha1.DeliveryExternal, pods(host...), there(t, first))
	plan := mustMake(t, begun)
	if plan.State.Delivery != v1alpha1.DeliveryCompanion || !plan.State.InTarget {
		t.Fatalf("%+v", plan.State)
	}
	w := world(t, v1alpha1.DeliveryCompanion, pods(host...), there(t, first), there(t, plan))
	back := mustMake(t, w)
	for _, want := range []string{"ConfigMap/kms-health-reporter-api-", "ServiceAccount/kms-health-reporter-api"} {
		if !strings.Contains(names(back.Delete), want) {
			t.Errorf("%s stays: %s goes", want, names(back.Delete))
		}
	}
	if !back.State.InTarget || len(back.DeleteSecrets) != 1 {
		t.Errorf("%+v; %v", back.State, back.DeleteSecrets)
	}
	w.Own = slices.DeleteFunc(w.Own, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "ns" && o.GetKind() != "Role" })
	w.State = back.State
	w.State.Secrets = nil
	if done := mustMake(t, w); done.State.InTarget {
		t.Error("it is still looked after when nothing is left")
	}
}

// foreign is a resource with a report of another make.
func foreign(written time.Time) *rollup.Resource {
	return &rollup.Resource{Reports: []rollup.Report{{Node: "a", Form: rollup.FormTyped, Writer: "kms-preflight", Written: written}}}
}
