package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
)

func typed[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	v := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, v, true); err != nil {
		t.Fatal(err)
	}
	return v
}

// The reporter's container differs between the modes only by its mounts, its user, and the SELinux type that lets it
// connect to sockets of other pods.
func TestContainerIsTheSameInEveryDelivery(t *testing.T) {
	config, err := v1alpha1.DecodeOperator(v1alpha1.OperatorOpenShift)
	if err != nil {
		t.Fatal(err)
	}
	config.Image = "reporter:1"
	settings, err := tlsprofile.Of(nil)
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{
		Config: config, Namespace: "kms-health", Target: &config.APIServers[0], OpenShift: true, TLS: settings,
		CA: []byte("CA"),
	}
	folders := []Folder{{MountPath: "/run/kms", HostPath: "/srv"}}
	companion := in.CompanionPod(APIServerPod{Node: "n", UID: "u", Folders: folders, User: contract.Root}, nil)
	daemonSet := in.DaemonSet(folders, contract.Root, nil)
	api := corev1.Container{Name: "api", VolumeMounts: []corev1.VolumeMount{{Name: "s", MountPath: "/run/kms"}}}
	sidecar := *in
	sidecar.Target = &v1alpha1.APIServer{Name: "a", Mode: v1alpha1.ModeSidecar, Container: "api"}
	spec := &corev1.PodSpec{Containers: []corev1.Container{api}}
	injected, err := added(&sidecar, spec, []v1alpha1.Plugin{{KeyID: "a", Endpoint: "unix:///run/kms/a.sock"}})
	if err != nil {
		t.Fatal(err)
	}
	same := func(c corev1.Container) corev1.Container {
		if len(c.VolumeMounts) == 0 || c.SecurityContext.RunAsUser == nil {
			t.Errorf("no mounts or no user: %v", c)
		}
		c.VolumeMounts = nil
		c.SecurityContext.RunAsUser, c.SecurityContext.RunAsNonRoot, c.SecurityContext.SELinuxOptions = nil, nil, nil
		return c
	}
	want := same(injected.Containers[0])
	for name, spec := range map[string]corev1.PodSpec{
		"Companion": typed[corev1.Pod](t, companion).Spec,
		"DaemonSet": typed[appsv1.DaemonSet](t, daemonSet).Spec.Template.Spec,
	} {
		if d := cmp.Diff(want, same(spec.Containers[0])); d != "" {
			t.Errorf("%s (-injected +own):\n%s", name, d)
		}
	}
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
	config, err := v1alpha1.DecodeOperator(v1alpha1.OperatorKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		selector map[string]string
		exists   bool
	}{"not set": {nil, true}, "all nodes": {map[string]string{}, false}, "named": {map[string]string{"a": "b"}, false}} {
		config.APIServers[0].NodeSelector = c.selector
		in := &Input{Config: config, Namespace: "kms-health", Target: &config.APIServers[0], CA: []byte("CA")}
		o := in.DaemonSet([]Folder{{MountPath: "/run/kms", HostPath: "/srv"}}, contract.Root, nil)
		spec := typed[appsv1.DaemonSet](t, o).Spec.Template.Spec
		if d := cmp.Diff(c.selector, spec.NodeSelector); d != "" && len(c.selector) > 0 {
			t.Errorf("%s: %s", name, d)
		}
		exists := false
		if spec.Affinity != nil {
			required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			exists = required.NodeSelectorTerms[0].MatchExpressions[0].Operator == corev1.NodeSelectorOpExists
		}
		if exists != c.exists {
			t.Errorf("%s: %+v", name, spec.Affinity)
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
