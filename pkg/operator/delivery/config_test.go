package delivery

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/podspec"
)

func configSource(source v1alpha1.ConfigSource) func(*Snapshot) {
	return func(s *Snapshot) { s.Target.ConfigSource = source }
}

func encryptsConfigMaps(is bool) func(*Snapshot) {
	return func(s *Snapshot) { s.ConfigMapsEncrypted = &is }
}

func TestConfigSourceFollowsWhetherConfigMapsAreEncrypted(t *testing.T) {
	nothing := func(*Snapshot) {}
	for name, c := range map[string]struct {
		delivery v1alpha1.Delivery
		change   func(*Snapshot)
		want     v1alpha1.ConfigSource
		why      string
	}{
		"encrypted":               {v1alpha1.DeliveryCompanion, encryptsConfigMaps(true), v1alpha1.ConfigSourceAnnotation, "kube-apiserver encrypts configmaps with KMS"},
		"not encrypted":           {v1alpha1.DeliveryCompanion, encryptsConfigMaps(false), v1alpha1.ConfigSourceConfigMap, "kube-apiserver does not encrypt configmaps with KMS"},
		"unknown":                 {v1alpha1.DeliveryCompanion, nothing, v1alpha1.ConfigSourceAnnotation, "is not known"},
		"an agent, too":           {v1alpha1.DeliveryDaemonSet, encryptsConfigMaps(true), v1alpha1.ConfigSourceAnnotation, "kube-apiserver encrypts configmaps with KMS"},
		"configured":              {v1alpha1.DeliveryDaemonSet, configSource(v1alpha1.ConfigSourceConfigMap), v1alpha1.ConfigSourceConfigMap, "as configured"},
		"pods of another owner":   {v1alpha1.DeliveryDeployment, encryptsConfigMaps(true), v1alpha1.ConfigSourceConfigMap, ""},
		"pods of another owner 2": {v1alpha1.DeliveryExternal, nothing, v1alpha1.ConfigSourceConfigMap, ""},
	} {
		source, why := fixture(t, c.delivery, c.change).configSource(c.delivery)
		if source != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s, %q", name, source, why)
		}
	}
}

func TestEveryPluginSetHasItsConfigMap(t *testing.T) {
	two := func(s *Snapshot) {
		s.Encryption.Revisions = map[string][]v1alpha1.Plugin{"7": set(2, 1).Plugins}
		s.Pods = append(s.Pods, apiPod("b", "2", revision("7")))
	}
	both := "ConfigMap/" + companionConfigMapOf(1) + " ConfigMap/" + companionConfigMapOf(2, 1)
	if companionConfigMapOf(2, 1) < companionConfigMapOf(1) {
		both = "ConfigMap/" + companionConfigMapOf(2, 1) + " ConfigMap/" + companionConfigMapOf(1)
	}
	for _, c := range []struct {
		encrypted       bool
		applied, copied string
	}{{false, both, ""}, {true, "", both}} {
		plan := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), two, encryptsConfigMaps(c.encrypted)))
		maps := slices.DeleteFunc(slices.Clone(plan.Apply), func(o *unstructured.Unstructured) bool { return o.GetKind() != "ConfigMap" })
		if names(maps) != c.applied || names(plan.Copied) != c.copied {
			t.Errorf("encrypted %v: %q before the pods, %q after them", c.encrypted, names(maps), names(plan.Copied))
		}
		for _, o := range plan.Workloads {
			_, copied := o.GetAnnotations()[manifests.ConfigAnnotation]
			if hash := o.GetAnnotations()[manifests.ConfigHashAnnotation]; copied != c.encrypted || hash == "" {
				t.Errorf("encrypted %v: %s has its file in an annotation: %v, hash %q", c.encrypted, o.GetName(), copied, hash)
			}
		}
	}
}

// While the write key changes, API servers have the same sockets with other roles.
func TestCompanionsWithOtherRolesHaveTheirOwnConfigMap(t *testing.T) {
	other := func(s *Snapshot) {
		s.Encryption.Revisions = map[string][]v1alpha1.Plugin{"7": set(1, 2).Plugins, "8": set(2, 1).Plugins}
		s.Pods = []*corev1.Pod{apiPod("a", "1", revision("7")), apiPod("b", "2", revision("8"))}
	}
	plan := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, other, encryptsConfigMaps(false)))
	files := appliedFiles(plan)
	for i, write := range []string{"1", "2"} {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(plan.Workloads[i].Object, &pod); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })
		file, err := v1alpha1.DecodeReporter([]byte(files[pod.Spec.Volumes[at].ConfigMap.Name]))
		if err != nil {
			t.Fatal(err)
		}
		for _, plugin := range file.Plugins {
			if is := plugin.Role == v1alpha1.RoleWrite; is != (plugin.KeyID == write) {
				t.Errorf("node %s writes with key %s: its file has key %s as %s", nodeOf(plan.Workloads[i]), write, plugin.KeyID, plugin.Role)
			}
		}
	}
}

// Companions that wait for their replacement get a changed interval, too: here they have the
// ConfigMap of an earlier version, which was named by the sockets alone.
func TestWaitingCompanionsGetChangesLive(t *testing.T) {
	three := pods(apiPod("a", "1"), apiPod("b", "2"), apiPod("c", "3"))
	first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, three, encryptsConfigMaps(false)))
	var was *unstructured.Unstructured
	for _, o := range slices.Concat(first.Apply, first.Workloads) {
		switch o.GetKind() {
		case "ConfigMap":
			o.SetName(configMapOf(1))
			was = o
		case "Pod":
			volumes, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumes")
			for _, v := range volumes {
				if volume, _ := v.(map[string]any); volume["configMap"] != nil {
					volume["configMap"].(map[string]any)["name"] = configMapOf(1)
				}
			}
			_ = unstructured.SetNestedSlice(o.Object, volumes, "spec", "volumes")
			o.SetName(o.GetName() + "-earlier")
		}
	}
	s := fixture(t, v1alpha1.DeliveryCompanion, three, delivered(t, first), encryptsConfigMaps(false), func(s *Snapshot) {
		s.Config.Probe.Interval.Duration = 17 * time.Second
	})
	files := appliedFiles(planOf(t, s))
	for _, name := range []string{was.GetName(), companionConfigMapOf(1)} {
		if !strings.Contains(files[name], "17s") {
			t.Errorf("ConfigMap %s: %q", name, files[name])
		}
	}
}

// So do agents that wait for theirs, and companions that agents replace.
func TestEarlierReportersGetChangesLive(t *testing.T) {
	on := pods(apiPod("a", "1", onHost))
	agent := func(s *Snapshot) {
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{
			"nodeName": "a", "volumes": []any{map[string]any{"name": podspec.ConfigVolume, "configMap": map[string]any{"name": configMapOf(1)}}},
		}}}
		pod.SetName("agent")
		pod.SetNamespace(s.Namespace)
		pod.SetLabels(map[string]string{manifests.DeliveryLabel: string(v1alpha1.DeliveryDaemonSet)})
		s.Own = append(s.Own, pod)
	}
	for name, c := range map[string]struct {
		was    v1alpha1.Delivery
		change func(*Snapshot)
		mounts string
	}{
		"agents with another socket":      {v1alpha1.DeliveryDaemonSet, agent, configMapOf(1)},
		"companions before the DaemonSet": {v1alpha1.DeliveryCompanion, func(*Snapshot) {}, companionConfigMapOf(1)},
	} {
		first := planOf(t, fixture(t, c.was, on, encryptsConfigMaps(false)))
		files := appliedFiles(planOf(t, fixture(t, v1alpha1.DeliveryDaemonSet, on, delivered(t, first), c.change, encryptsConfigMaps(false), func(s *Snapshot) {
			s.Encryption.Live = set(2, 1)
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

// appliedFiles are the reporters' files that a plan applies, by the name of the ConfigMap.
func appliedFiles(plan *Plan) map[string]string {
	files := map[string]string{}
	for _, o := range plan.Apply {
		if o.GetKind() == "ConfigMap" {
			files[o.GetName()], _, _ = unstructured.NestedString(o.Object, "data", "config.yaml")
		}
	}
	return files
}

func TestCopiedFileIsThatOfTheConfigMap(t *testing.T) {
	plan := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), encryptsConfigMaps(true)))
	data, _, _ := unstructured.NestedStringMap(plan.Copied[0].Object, "data")
	is := plan.Workloads[0].GetAnnotations()
	if is[manifests.ConfigAnnotation] != data["config.yaml"] || is[manifests.KubeconfigAnnotation] != data["kubeconfig"] || data["config.yaml"] == "" || data["kubeconfig"] == "" {
		t.Errorf("%v differs from %v", is, data)
	}
}

// reportedBy gives nodes a report of a reporter that began at a time.
func reportedBy(at time.Time, nodes ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Resource = &operatorcr.Status{}
		for _, node := range nodes {
			s.Resource.Reports = append(s.Resource.Reports, operatorcr.Report{
				Node: node, Form: operatorcr.FormCondition, Ours: true, Since: at, Written: at,
				Entries: []health.Entry{{LastChecked: at}},
			})
		}
	}
}

func TestChangedConfigSourceReplacesOneNodeAtATimeAndTheNewReportsFirst(t *testing.T) {
	three := pods(apiPod("a", "1"), apiPod("b", "2"), apiPod("c", "3"))
	began := time.Unix(1e9, 0).Add(-time.Hour)
	first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, three, encryptsConfigMaps(true)))
	s := fixture(t, v1alpha1.DeliveryCompanion, three, delivered(t, first), encryptsConfigMaps(false), reportedBy(began, "a", "b", "c"))
	done := 0
	for node := range strings.FieldsSeq("a b c") {
		plan := planOf(t, s)
		created := slices.DeleteFunc(slices.Clone(plan.Workloads), func(o *unstructured.Unstructured) bool { return s.find(o) != nil })
		if len(created) != 1 || nodeOf(created[0]) != node || len(plan.Delete) > 0 {
			t.Fatalf("creates %s, deletes %s: must be one on node %s", names(created), names(plan.Delete), node)
		}
		if plan.Status.Reason != Progressing {
			t.Errorf("%+v", plan.Status)
		}
		s.Now = s.Now.Add(time.Minute)
		delivered(t, &Plan{Workloads: created, Copied: nil, Apply: plan.Apply, State: plan.State})(s)
		if plan := planOf(t, s); len(plan.Delete) > 0 || plan.Requeue.IsZero() {
			t.Fatalf("%s is deleted before the new one has reported", names(plan.Delete))
		}
		done++
		for i := range s.Resource.Reports[:done] {
			s.Resource.Reports[i].Since = s.Now
		}
		plan = planOf(t, s)
		if len(plan.Delete) != 1 || nodeOf(plan.Delete[0]) != node {
			t.Fatalf("%s is deleted, must be the earlier one on node %s", names(plan.Delete), node)
		}
		gone := plan.Delete[0]
		s.Own = slices.DeleteFunc(s.Own, func(o *unstructured.Unstructured) bool { return o == gone })
	}
	if plan := planOf(t, s); plan.Status.Condition() != "True" || len(plan.Delete) > 0 {
		t.Errorf("%+v, deletes %s", plan.Status, names(plan.Delete))
	}
}

// The new reporter writes the typed form only, and the earlier one, with the file that it was
// created with, goes on with its condition.
func TestChangedFormatDoesNotWaitForAReportThatTheNewReporterDoesNotWrite(t *testing.T) {
	one := pods(apiPod("a", "1"))
	began := time.Unix(1e9, 0).Add(-time.Hour)
	first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, one, encryptsConfigMaps(true)))
	s := fixture(t, v1alpha1.DeliveryCompanion, one, delivered(t, first), encryptsConfigMaps(true), reportedBy(began, "a"), func(s *Snapshot) {
		s.Config.Image, s.Config.Format = "reporter:2", v1alpha1.FormatHealthReports
	})
	plan := planOf(t, s)
	created := slices.DeleteFunc(slices.Clone(plan.Workloads), func(o *unstructured.Unstructured) bool { return s.find(o) != nil })
	if len(created) != 1 || len(plan.Delete) > 0 {
		t.Fatalf("creates %s, deletes %s", names(created), names(plan.Delete))
	}
	s.Now = s.Now.Add(time.Minute)
	delivered(t, &Plan{Workloads: created, Apply: plan.Apply, State: plan.State})(s)
	if plan = planOf(t, s); len(plan.Delete) != 1 || plan.Delete[0].GetName() == created[0].GetName() {
		t.Errorf("deletes %s, must be the earlier one", names(plan.Delete))
	}
}

func TestIntervalIsLiveInAnnotationsOfADaemonSet(t *testing.T) {
	on := pods(apiPod("a", "1", onHost))
	first := planOf(t, fixture(t, v1alpha1.DeliveryDaemonSet, on, encryptsConfigMaps(true)))
	template := templateAnnotations(first.Workloads[0])
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
	pod.SetName("agent")
	pod.SetNamespace("kms-health")
	pod.SetAnnotations(template)
	pod.SetLabels(map[string]string{manifests.DeliveryLabel: "DaemonSet", manifests.TargetLabel: "api"})
	s := fixture(t, v1alpha1.DeliveryDaemonSet, on, delivered(t, first), encryptsConfigMaps(true), func(s *Snapshot) {
		s.Own = append(s.Own, pod)
		s.Config.Probe.Interval.Duration = 90 * time.Second
	})
	mounting := pod.DeepCopy()
	mounting.SetName("mounting")
	mounting.SetAnnotations(map[string]string{manifests.ConfigHashAnnotation: template[manifests.ConfigHashAnnotation]})
	s.Own = append(s.Own, mounting)
	plan := planOf(t, s)
	now := templateAnnotations(plan.Workloads[0])
	if now[manifests.ConfigAnnotation] != template[manifests.ConfigAnnotation] {
		t.Error("an interval changes the template, which replaces the pods")
	}
	if len(plan.LiveFiles) != 1 || !strings.Contains(plan.LiveFiles[0].GetAnnotations()[manifests.ConfigAnnotation], "1m30s") {
		t.Errorf("the pod gets %v", plan.LiveFiles)
	}
	pod.SetAnnotations(map[string]string{manifests.ConfigHashAnnotation: template[manifests.ConfigHashAnnotation],
		manifests.ConfigAnnotation: plan.LiveFiles[0].GetAnnotations()[manifests.ConfigAnnotation], manifests.KubeconfigAnnotation: template[manifests.KubeconfigAnnotation]})
	if plan := planOf(t, s); len(plan.LiveFiles) > 0 {
		t.Errorf("a pod that has the current files gets %v", plan.LiveFiles)
	}
	s.Encryption.Live = set(2, 1)
	plan = planOf(t, s)
	now = templateAnnotations(plan.Workloads[0])
	if !strings.Contains(now[manifests.ConfigAnnotation], "kms-2.sock") || !strings.Contains(now[manifests.ConfigAnnotation], "1m30s") || len(plan.LiveFiles) > 0 {
		t.Errorf("another plugin set is a new template, with the current files; pods get %v:\n%s", plan.LiveFiles, now[manifests.ConfigAnnotation])
	}
	s.Config.Rollout = v1alpha1.RolloutAlways
	s.Encryption.Live = set(1)
	if now := templateAnnotations(planOf(t, s).Workloads[0]); !strings.Contains(now[manifests.ConfigAnnotation], "1m30s") {
		t.Error("with Always, the interval is in the template")
	}
}
