package reportercontroller

import (
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
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

func configSource(source v1alpha1.ConfigSource) func(*Snapshot) {
	return func(s *Snapshot) { s.Target.ConfigSource = source }
}

// A pod that mounts an encrypted ConfigMap cannot start during the outage that it should report.
func TestMountedConfigMapThatKMSEncryptsIsAProblem(t *testing.T) {
	const mounted, copied = v1alpha1.ConfigSourceConfigMap, v1alpha1.ConfigSourceAnnotation
	for name, c := range map[string]struct {
		delivery  v1alpha1.Mode
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
		if c.delivery == v1alpha1.ModeDaemonSet {
			pod = apiPod("a", "1", onHost)
		}
		plan := planOf(t, fixture(t, c.delivery, pods(pod), configSource(c.source), func(s *Snapshot) {
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
	plan := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), func(s *Snapshot) {
		s.Encrypted = []schema.GroupResource{s.Target.ReportsTo().GVR().GroupResource()}
	}))
	if plan.Status.Reason != contract.ReportsEncrypted || len(workloads(plan)) != 1 {
		t.Errorf("%+v, %s", plan.Status, names(workloads(plan)))
	}
}

func TestEveryPluginSetHasItsConfigMap(t *testing.T) {
	two := func(s *Snapshot) {
		s.Sets = map[string]encryptionconfig.Set{"7": *set(2, 1)}
		s.Pods = append(s.Pods, apiPod("b", "2", revision("7")))
	}
	sorted := []string{"ConfigMap/" + companionConfigMapOf(1), "ConfigMap/" + companionConfigMapOf(2, 1)}
	slices.Sort(sorted)
	both := strings.Join(sorted, " ")
	if companionConfigMapOf(1, 2) == companionConfigMapOf(2, 1) {
		t.Error("companions with other roles share a ConfigMap") // while the write key changes
	}
	for _, c := range []struct {
		source          v1alpha1.ConfigSource
		applied, copied string
	}{{v1alpha1.ConfigSourceConfigMap, both, ""}, {v1alpha1.ConfigSourceAnnotation, "", both}} {
		plan := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), two, configSource(c.source)))
		pod := slices.IndexFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Pod" })
		before, after := ofKind(plan.Apply[:pod], "ConfigMap"), ofKind(plan.Apply[pod:], "ConfigMap")
		if names(before) != c.applied || names(after) != c.copied {
			t.Errorf("%s: %q before the pods, %q after them", c.source, names(before), names(after))
		}
		for _, o := range workloads(plan) {
			_, copied := o.GetAnnotations()[contract.ConfigAnnotation]
			hash := o.GetAnnotations()[contract.ConfigHashAnnotation]
			if copied != (c.source == v1alpha1.ConfigSourceAnnotation) || hash == "" {
				t.Errorf("%s: %s has its file in an annotation: %v, hash %q", c.source, o.GetName(), copied, hash)
			}
			if copied && !slices.ContainsFunc(after, func(cm *unstructured.Unstructured) bool {
				data, _, _ := unstructured.NestedStringMap(cm.Object, "data")
				is := o.GetAnnotations()
				return is[contract.ConfigAnnotation] == data["config.yaml"] &&
					is[contract.KubeconfigAnnotation] == data["kubeconfig"]
			}) {
				t.Errorf("%s has another file than its ConfigMap", o.GetName())
			}
		}
	}
}

// Agents that wait for their replacement get a changed interval, and so do companions that agents replace.
func TestEarlierReportersGetChangesLive(t *testing.T) {
	on := pods(apiPod("a", "1", onHost))
	agent := func(s *Snapshot) {
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{
			"nodeName": "a", "volumes": []any{map[string]any{"name": objects.ConfigVolume,
				"configMap": map[string]any{"name": configMapOf(1)}}},
		}}}
		pod.SetName("agent")
		pod.SetNamespace(s.Namespace)
		pod.SetLabels(map[string]string{contract.ModeLabel: string(v1alpha1.ModeDaemonSet)})
		s.Own = append(s.Own, pod)
	}
	for name, c := range map[string]struct {
		was    v1alpha1.Mode
		change func(*Snapshot)
		mounts string
	}{
		"agents with another socket":      {v1alpha1.ModeDaemonSet, agent, configMapOf(1)},
		"companions before the DaemonSet": {v1alpha1.ModeCompanionPod, func(*Snapshot) {}, companionConfigMapOf(1)},
	} {
		first := planOf(t, fixture(t, c.was, on, configSource(v1alpha1.ConfigSourceConfigMap)))
		files := appliedFiles(planOf(t, fixture(t, v1alpha1.ModeDaemonSet, on, delivered(t, first), c.change,
			configSource(v1alpha1.ConfigSourceConfigMap), func(s *Snapshot) {
				s.Live = set(2, 1)
				s.Config.Probe.Interval.Duration = 17 * time.Second
			})))
		if file := files[c.mounts]; !strings.Contains(file, "17s") || strings.Contains(file, "kms-2.sock") {
			t.Errorf("%s: ConfigMap %s: %q", name, c.mounts, file)
		}
		if file := files[configMapOf(2, 1)]; !strings.Contains(file, "kms-2.sock") {
			t.Errorf("%s: the new file: %q", name, file)
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

// reportedBy gives nodes a report of an earlier reporter at a time.
func reportedBy(at time.Time, nodes ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Resource = &operatorstatus.Status{}
		for _, node := range nodes {
			s.Resource.Reports = append(s.Resource.Reports, reportOf(node, "before", at))
		}
	}
}

func TestCompanionStaysUntilItsSuccessorReports(t *testing.T) {
	three := pods(apiPod("a", "1"), apiPod("b", "2"), apiPod("c", "3"))
	began := time.Unix(1e9, 0).Add(-time.Hour)
	first := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, three, configSource(v1alpha1.ConfigSourceAnnotation)))
	s := fixture(t, v1alpha1.ModeCompanionPod, three, delivered(t, first), configSource(v1alpha1.ConfigSourceConfigMap),
		reportedBy(began, "a", "b", "c"))
	plan := planOf(t, s)
	if created := created(s, plan); len(created) != 3 || len(plan.Delete) > 0 ||
		plan.Status.Reason != contract.Progressing {
		t.Fatalf("creates %s, deletes %s; %+v", names(created), names(plan.Delete), plan.Status)
	}
	delivered(t, &Plan{Apply: plan.Apply, State: plan.State})(s)
	if plan := planOf(t, s); len(plan.Delete) > 0 {
		t.Fatalf("%s is deleted before the new one has reported", names(plan.Delete))
	}
	for i := range s.Resource.Reports {
		node := s.Resource.Reports[i].Node
		s.Resource.Reports[i].Entries[0].Reporter = "companion-" + node
		plan := planOf(t, s)
		if len(plan.Delete) != 1 || nodeOf(plan.Delete[0]) != node {
			t.Fatalf("%s is deleted, must be the earlier one on node %s", names(plan.Delete), node)
		}
		gone := plan.Delete[0]
		s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool { return o == gone })
	}
	if plan := planOf(t, s); !plan.Status.Delivered() || len(plan.Delete) > 0 {
		t.Errorf("%+v, deletes %s", plan.Status, names(plan.Delete))
	}
}

// liveFiles returns a plan's changes to existing pods of a DaemonSet.
func liveFiles(plan *Plan) []*unstructured.Unstructured { return ofKind(plan.Apply, "Pod") }

func templateAnnotations(plan *Plan) map[string]string {
	return informers.As[appsv1.DaemonSet](ofKind(plan.Apply, "DaemonSet")[0]).Spec.Template.Annotations
}

// agent returns a pod of a DaemonSet whose template has these annotations.
func agent(template map[string]string) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	pod.SetName("agent")
	pod.SetNamespace("kms-health")
	pod.SetAnnotations(template)
	pod.SetLabels(map[string]string{contract.ModeLabel: "DaemonSet", contract.APIServerLabel: "api"})
	return pod
}

func TestARequestIsLiveInAnnotationsOfADaemonSet(t *testing.T) {
	on, copied := pods(apiPod("a", "1", onHost)), configSource(v1alpha1.ConfigSourceAnnotation)
	requested := func(s *Snapshot) { s.Requested = "r1" }
	first := planOf(t, fixture(t, v1alpha1.ModeDaemonSet, on, copied))
	template := templateAnnotations(first)
	pod := agent(template)
	existing := func(s *Snapshot) { s.Own = append(s.Own, pod) }
	for name, tt := range map[string]struct {
		more []func(*Snapshot)
		want bool
	}{
		"a new DaemonSet":                {[]func(*Snapshot){requested, existing}, true},
		"an existing one":                {[]func(*Snapshot){delivered(t, first), requested, existing}, true},
		"an annotation that was deleted": {[]func(*Snapshot){delivered(t, first), existing}, false},
		"and another interval":           {[]func(*Snapshot){delivered(t, first), requested, existing, slower}, true},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(t, fixture(t, v1alpha1.ModeDaemonSet, append([]func(*Snapshot){on, copied}, tt.more...)...))
			if now := templateAnnotations(plan); !maps.Equal(now, template) {
				t.Errorf("the template has %v, want %v", now, template)
			}
			files := liveFiles(plan)
			if len(files) != 1 {
				t.Fatalf("%d pods get files", len(files))
			}
			file := files[0].GetAnnotations()[contract.ConfigAnnotation]
			if got := strings.Contains(file, "requested: r1"); got != tt.want {
				t.Errorf("the request is in the pod's file: %v\n%s", got, file)
			}
			if hash := files[0].GetAnnotations()[contract.ConfigHashAnnotation]; hash != template[contract.ConfigHashAnnotation] {
				t.Errorf("the hash of the plugin set is %s", hash)
			}
		})
	}
}

func slower(s *Snapshot) { s.Config.Probe.Interval.Duration = 90 * time.Second }

func TestIntervalIsLiveInAnnotationsOfADaemonSet(t *testing.T) {
	on := pods(apiPod("a", "1", onHost))
	first := planOf(t, fixture(t, v1alpha1.ModeDaemonSet, on, configSource(v1alpha1.ConfigSourceAnnotation)))
	template := templateAnnotations(first)
	pod := agent(template)
	s := fixture(t, v1alpha1.ModeDaemonSet, on, delivered(t, first), configSource(v1alpha1.ConfigSourceAnnotation),
		func(s *Snapshot) {
			s.Own = append(s.Own, pod)
			slower(s)
		})
	mounting := pod.DeepCopy()
	mounting.SetName("mounting")
	mounting.SetAnnotations(map[string]string{contract.ConfigHashAnnotation: template[contract.ConfigHashAnnotation]})
	s.Own = append(s.Own, mounting)
	plan := planOf(t, s)
	now := templateAnnotations(plan)
	if now[contract.ConfigAnnotation] != template[contract.ConfigAnnotation] {
		t.Error("an interval changes the template, which replaces the pods")
	}
	if len(liveFiles(plan)) != 1 || !strings.Contains(liveFiles(plan)[0].GetAnnotations()[contract.ConfigAnnotation],
		"1m30s") {
		t.Errorf("the pod gets %v", liveFiles(plan))
	}
	pod.SetAnnotations(map[string]string{contract.ConfigHashAnnotation: template[contract.ConfigHashAnnotation],
		contract.ConfigAnnotation:     liveFiles(plan)[0].GetAnnotations()[contract.ConfigAnnotation],
		contract.KubeconfigAnnotation: template[contract.KubeconfigAnnotation]})
	if part := ssa.MetadataPatch(liveFiles(planOf(t, s))[0], pod); len(part) > 0 {
		t.Errorf("a pod that has the current files gets %v", part)
	}
	s.Live = set(2, 1)
	plan = planOf(t, s)
	now = templateAnnotations(plan)
	if !strings.Contains(now[contract.ConfigAnnotation], "kms-2.sock") ||
		!strings.Contains(now[contract.ConfigAnnotation], "1m30s") || len(liveFiles(plan)) > 0 {
		t.Errorf("another plugin set is a new template, with the current files; pods get %v:\n%s", liveFiles(plan),
			now[contract.ConfigAnnotation])
	}
}
