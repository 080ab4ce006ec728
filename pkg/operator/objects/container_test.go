package objects

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

func typed[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	v := new(T)
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, v, true))
	return v
}

func TestLocalServerIsThatOfTheNodeItself(t *testing.T) {
	for server, local := range map[string]bool{
		"https://localhost:6443": true, "https://LocalHost:6443": true, "https://127.0.0.1:6443": true,
		"https://[::1]:6443":    true,
		"https://[fd00::1]:443": false, "https://api-int.example.com:6443": false,
		"https://localhost.example.com": false, "": false,
	} {
		if IsLocal(server) != local {
			t.Errorf("%q", server)
		}
	}
}

// The label of a control plane's node has no value on most clusters, and "true" on k3s and RKE2.
func TestDaemonSetSelectsByTheLabelUnlessNodesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		selector map[string]string
		want     corev1.NodeSelectorOperator
	}{"not set": {nil, corev1.NodeSelectorOpExists}, "all nodes": {map[string]string{}, ""}, "named": {map[string]string{"a": "b"}, ""}} {
		in := sidecarInput()
		in.Target.Mode, in.Target.NodeSelector = v1alpha1.ModeDaemonSet, c.selector
		spec := typed[appsv1.DaemonSet](t, in.DaemonSet(nil, contract.Root, nil)).Spec.Template.Spec
		var got corev1.NodeSelectorOperator
		if spec.Affinity != nil {
			required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			got = required.NodeSelectorTerms[0].MatchExpressions[0].Operator
		}
		if got != c.want || !maps.Equal(spec.NodeSelector, c.selector) {
			t.Errorf("%s: %v, %+v", name, spec.NodeSelector, spec.Affinity)
		}
	}
}

// Paths of a pod may contain characters that YAML rejects even inside JSON strings.
func TestAnyTextOfAPodCanBeRendered(t *testing.T) {
	path := "/run/\x00\x7f\u0085\u2028\ufeff\uffff'\"{{ }}: #\n---\n\U0001f511"
	in, folder := sidecarInput(), Folder{MountPath: path, HostPath: path, SubPath: path}
	in.Target.Mode = v1alpha1.ModeCompanionPod
	o := in.CompanionPod(APIServerPod{Node: path, Folders: []Folder{folder}}, nil)
	spec := typed[corev1.Pod](t, o).Spec
	mounts := spec.Containers[0].VolumeMounts // the last one is the state volume
	if last := mounts[len(mounts)-2]; spec.NodeName != path || last.MountPath != path || last.SubPath != path {
		t.Errorf("%q, %+q, %+q", spec.NodeName, last.MountPath, last.SubPath)
	}
}
