package reportercontroller

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

func configSource(source v1alpha1.ConfigSource) func(*Snapshot) {
	return func(s *Snapshot) { s.Target.ConfigSource = source }
}

// A pod that mounts an encrypted ConfigMap cannot start during the outage that it should report.
func TestMountedConfigMapThatKMSEncryptsIsAProblem(t *testing.T) {
	const mounted, copied = v1alpha1.ConfigSourceConfigMap, v1alpha1.ConfigSourceAnnotation
	for name, c := range map[string]struct {
		mode      v1alpha1.Mode
		source    v1alpha1.ConfigSource
		encrypted bool
		problem   bool
	}{
		"mounted, encrypted":    {v1alpha1.ModeCompanionPod, mounted, true, true},
		"mounted, not known":    {v1alpha1.ModeCompanionPod, mounted, false, false},
		"copied, encrypted":     {v1alpha1.ModeCompanionPod, copied, true, false},
		"an agent":              {v1alpha1.ModeDaemonSet, mounted, true, true},
		"pods of another owner": {v1alpha1.ModeSidecar, mounted, true, false},
	} {
		pod := apiPod("a", "1")
		if c.mode == v1alpha1.ModeDaemonSet {
			pod = apiPod("a", "1", onHost)
		}
		plan := ComputePlan(fixture(t, c.mode, pods(pod), configSource(c.source), func(s *Snapshot) {
			if s.Deployment = deployment(1); c.encrypted {
				s.Encrypted = []schema.GroupResource{encryptionconfig.ConfigMaps}
			}
		}))
		if got := plan.Status.Reason == contract.ConfigMapsEncrypted; got != c.problem || got &&
			!strings.Contains(plan.Status.Message, "set configSource: Annotation") {
			t.Errorf("%s: %+v", name, plan.Status)
		}
	}
}

// The problem is reported before an outage. The delivery continues, because reports can be written until the plugin
// fails.
func TestReportsThatNeedThePluginAreReportedBeforehand(t *testing.T) {
	plan := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), func(s *Snapshot) {
		s.Encrypted = []schema.GroupResource{s.Target.ReportsTo().GVR().GroupResource()}
	}))
	if plan.Status.Reason != contract.ReportsEncrypted || len(workloads(plan)) != 1 {
		t.Errorf("%+v, %s", plan.Status, names(workloads(plan)))
	}
}

func TestEveryPluginSetThatPodsMountHasItsConfigMap(t *testing.T) {
	both := []string{"ConfigMap/" + configMapOf(1), "ConfigMap/" + configMapOf(2, 1)}
	slices.Sort(both)
	for source, want := range map[v1alpha1.ConfigSource]string{v1alpha1.ConfigSourceConfigMap: strings.Join(both, " "),
		v1alpha1.ConfigSourceAnnotation: ""} {
		s := fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1"), apiPod("b", "2", revision("7"))), configSource(source))
		s.Sets["7"] = *set(2, 1)
		plan := ComputePlan(s)
		firstPod := slices.IndexFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Pod" })
		all, first := names(ofKind(plan.Apply, "ConfigMap")), names(ofKind(plan.Apply[:firstPod], "ConfigMap"))
		if all != want || first != want {
			t.Errorf("%s: %q, before the pods %q, want %q", source, all, first, want)
		}
		for _, pod := range workloads(plan) {
			is := pod.GetAnnotations()
			copied := is[contract.ConfigAnnotation] != "" && is[contract.KubeconfigAnnotation] != ""
			if copied != (want == "") || is[contract.ConfigHashAnnotation] == "" {
				t.Errorf("%s: %s has its files in annotations: %t; %v", source, pod.GetName(), copied, is)
			}
		}
	}
}

// While the write key changes, pods of two revisions have the same sockets with other roles.
func TestAnotherWriteKeyReplacesNoCompanion(t *testing.T) {
	for _, source := range []v1alpha1.ConfigSource{v1alpha1.ConfigSourceConfigMap, v1alpha1.ConfigSourceAnnotation} {
		s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1", revision("4")), apiPod("b", "2", revision("4"))),
			configSource(source), func(s *Snapshot) { s.Sets["4"] = *set(1, 2) })
		before := names(s.own("Pod"))
		s.Pods[1].Labels["revision"], s.Sets["5"], s.Sets[liveRevision] = "5", *set(2, 1), *set(2, 1)
		plan := deletes(t, s, string(source), "", contract.AsExpected)
		if got := names(workloads(plan)); got != before || len(ofKind(plan.Apply, "ConfigMap")) > 1 {
			t.Errorf("%s: %s, were %s; %s", source, got, before, names(plan.Apply))
		}
	}
}

// Agents that wait for their replacement get a changed interval and CA, and so do companions that agents replace, also
// if these have their files in annotations.
func TestEarlierReportersGetChangesLive(t *testing.T) {
	mounts := configMapOf(1)
	for was, source := range map[v1alpha1.Mode]v1alpha1.ConfigSource{
		v1alpha1.ModeDaemonSet: v1alpha1.ConfigSourceConfigMap, v1alpha1.ModeCompanionPod: v1alpha1.ConfigSourceAnnotation,
	} {
		s := after(t, was, pods(apiPod("a", "1", onHost)), configSource(v1alpha1.ConfigSourceConfigMap))
		if was == v1alpha1.ModeDaemonSet {
			pod := agent(nil)
			pod.Object["spec"] = map[string]any{"nodeName": "a", "volumes": []any{
				map[string]any{"name": "config", "configMap": map[string]any{"name": mounts}}}}
			s.Own = append(s.Own, pod)
		}
		s.Target.Mode, s.Target.ConfigSource = v1alpha1.ModeDaemonSet, source
		s.Sets[liveRevision], s.CA = *set(2, 1), []byte("after")
		s.Config.Probe.Interval.Duration = 17 * time.Second
		plan := ComputePlan(s)
		files := appliedFiles(plan)
		if file := files[mounts]; !strings.Contains(file, "17s") || strings.Contains(file, "kms-2.sock") {
			t.Errorf("%s: ConfigMap %s: %q", was, mounts, file)
		}
		file := files[configMapOf(2, 1)]
		if mounted := source == v1alpha1.ConfigSourceConfigMap; strings.Contains(file, "kms-2.sock") != mounted {
			t.Errorf("%s: the new file: %q", was, file)
		}
		for _, cm := range ofKind(plan.Apply, "ConfigMap") {
			kubeconfig, _, _ := unstructured.NestedString(cm.Object, "data", "kubeconfig")
			if !strings.Contains(kubeconfig, base64.StdEncoding.EncodeToString(s.CA)) {
				t.Errorf("%s: ConfigMap %s has another CA:\n%s", was, cm.GetName(), kubeconfig)
			}
		}
	}
}

// appliedFiles returns the reporters' files that a plan applies, by the name of the ConfigMap.
func appliedFiles(plan *Plan) map[string]string {
	files := map[string]string{}
	for _, o := range plan.Apply {
		if o.GetKind() == "ConfigMap" {
			files[o.GetName()], _, _ = unstructured.NestedString(o.Object, "data", "config.yaml")
		}
	}
	return files
}

func TestCompanionStaysUntilItsSuccessorReports(t *testing.T) {
	s := after(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1"), apiPod("b", "2"), apiPod("c", "3")),
		configSource(v1alpha1.ConfigSourceAnnotation),
		reports(reportOf("a", "before"), reportOf("b", "before"), reportOf("c", "before")))
	s.Target.ConfigSource = v1alpha1.ConfigSourceConfigMap
	plan := ComputePlan(s)
	if created := created(s, plan); len(created) != 3 || len(plan.Delete) > 0 ||
		plan.Status.Reason != contract.Progressing {
		t.Fatalf("creates %s, deletes %s; %+v", names(created), names(plan.Delete), plan.Status)
	}
	delivered(&Plan{Apply: plan.Apply, State: plan.State})(s)
	deletes(t, s, "before the new ones have reported", "", contract.Progressing)
	for i, node := range []string{"a", "b", "c"} {
		old := s.own("Pod")[0]
		s.Resource.Reports[i] = reportOf(node, "companion-"+node)
		deletes(t, s, "when that of "+node+" reports", "Pod/"+old.GetName(), map[string]delivery.Reason{
			"a": contract.Progressing, "b": contract.Progressing, "c": contract.AsExpected}[node])
		s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool { return o == old })
	}
	deletes(t, s, "in the end", "", contract.AsExpected)
}

// liveFiles returns a plan's changes to existing pods of a DaemonSet.
func liveFiles(plan *Plan) []*unstructured.Unstructured { return ofKind(plan.Apply, "Pod") }

func templateAnnotations(plan *Plan) map[string]string {
	return informers.As[appsv1.DaemonSet](ofKind(plan.Apply, "DaemonSet")[0]).Spec.Template.Annotations
}

// agent returns a pod of a DaemonSet whose template has these annotations.
func agent(template map[string]string) *unstructured.Unstructured {
	pod := object("v1", "Pod", "kms-health", "agent")
	pod.SetAnnotations(template)
	pod.SetLabels(map[string]string{contract.ModeLabel: "DaemonSet", contract.APIServerLabel: "api"})
	return pod
}

// A change of the DaemonSet's template would replace the pods.
func TestChangesAreLiveInAnnotationsOfADaemonSet(t *testing.T) {
	type change = func(*Snapshot)
	base := []change{pods(apiPod("a", "1", onHost)), configSource(v1alpha1.ConfigSourceAnnotation)}
	template := templateAnnotations(ComputePlan(fixture(t, v1alpha1.ModeDaemonSet, base...)))
	exists := func(s *Snapshot) { delivered(ComputePlan(s))(s) }
	requested := func(s *Snapshot) { s.Requested = "r1" }
	slower := func(s *Snapshot) { s.Config.Probe.Interval.Duration = 90 * time.Second }
	for name, tt := range map[string]struct {
		more                []change
		requested, interval bool
	}{
		"a request, and a new DaemonSet":     {[]change{requested}, true, false},
		"a request, and an existing one":     {[]change{exists, requested}, true, false},
		"a request that was deleted":         {[]change{exists}, false, false},
		"an interval":                        {[]change{exists, slower}, false, true},
		"a request, and another interval":    {[]change{exists, requested, slower}, true, true},
		"the same, beside a pod that mounts": {[]change{exists, requested, slower, mountingAgent(template)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(t, v1alpha1.ModeDaemonSet, append(base, tt.more...)...)
			pod := agent(template)
			s.Own = append(s.Own, pod)
			plan := ComputePlan(s)
			if now := templateAnnotations(plan); !maps.Equal(now, template) {
				t.Errorf("the template has %v, want %v", now, template)
			}
			files := liveFiles(plan)
			if len(files) != 1 || files[0].GetName() != "agent" {
				t.Fatalf("%s get files", names(files))
			}
			got := files[0].GetAnnotations()
			file := got[contract.ConfigAnnotation]
			if strings.Contains(file, "requested: r1") != tt.requested || strings.Contains(file, "1m30s") != tt.interval {
				t.Errorf("the pod's file is\n%s", file)
			}
			if hash := got[contract.ConfigHashAnnotation]; hash != template[contract.ConfigHashAnnotation] {
				t.Errorf("the hash of the plugin set is %s", hash)
			}
			pod.SetAnnotations(got)
			if part := ssa.MetadataPatch(liveFiles(ComputePlan(s))[0], pod); len(part) > 0 {
				t.Errorf("a pod that has the current files gets %v", part)
			}
			s.Sets[liveRevision] = *set(2, 1)
			plan = ComputePlan(s)
			if now := templateAnnotations(plan)[contract.ConfigAnnotation]; !strings.Contains(now, "kms-2.sock") ||
				strings.Contains(now, "1m30s") != tt.interval || len(liveFiles(plan)) > 0 {
				t.Errorf("another plugin set is a new template, with the current files; pods get %v:\n%s", liveFiles(plan), now)
			}
		})
	}
}

// mountingAgent adds a pod that mounts its files.
func mountingAgent(template map[string]string) func(*Snapshot) {
	return func(s *Snapshot) {
		pod := agent(map[string]string{contract.ConfigHashAnnotation: template[contract.ConfigHashAnnotation]})
		pod.SetName("mounting")
		s.Own = append(s.Own, pod)
	}
}
