package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/test/harness/must"
)

var sidecarPlugins = []v1alpha1.Plugin{{KeyID: "2", Endpoint: "unix:///var/run/kmsplugin/kms-2.sock"}}

func sidecarInput() *Input {
	return &Input{
		Config: &v1alpha1.OperatorConfiguration{Image: "example.com/reporter@sha256:0123"},
		Target: &v1alpha1.APIServer{Name: "oas", Mode: v1alpha1.ModeSidecar, Deployment: "apiserver"},
	}
}

// added returns what a Sidecar adds to the spec of a pod.
func added(in *Input, spec *corev1.PodSpec, plugins []v1alpha1.Plugin) (corev1.PodSpec, error) {
	var template corev1.PodTemplateSpec
	raw, err := in.Sidecar(spec, plugins)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw, &template, true)
	}
	return template.Spec, err
}

func apiServerPod() *corev1.PodSpec {
	return &corev1.PodSpec{
		Containers: []corev1.Container{
			{
				Name: "kube-apiserver", Image: "example.com/apiserver",
				VolumeMounts: []corev1.VolumeMount{{Name: "kms-sockets", MountPath: "/var/run/kmsplugin"}},
			},
			{Name: "kms-plugin", Image: "example.com/plugin"},
		},
		Volumes: []corev1.Volume{
			{Name: "kms-sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

func TestPodWithTheReporterGetsTheSameSidecar(t *testing.T) {
	spec := apiServerPod()
	got, err := added(sidecarInput(), spec, sidecarPlugins)
	must.Succeed(t, err)
	spec.Containers, spec.Volumes = append(spec.Containers, got.Containers...), append(spec.Volumes, got.Volumes...)
	again, err := added(sidecarInput(), spec, sidecarPlugins)
	if d := cmp.Diff(got, again); d != "" || err != nil || !Injected(spec) {
		t.Errorf("%v (-first +again):\n%s", err, d)
	}
}

func TestReporterIsKnownByItsNameAndItsVolume(t *testing.T) {
	const another = `container "kms-health" has the name of the reporter's, and is another one: it does not mount ` +
		`kms-health-config at /etc/kms-health/config`
	for name, c := range map[string]struct {
		container, mounts string
		injected          bool
		err               string
	}{
		"the reporter":    {"kms-health", "x:/x kms-health-config:" + ConfigFolder, true, ""},
		"another name":    {"x", "kms-health-config:" + ConfigFolder, false, ""},
		"another volume":  {"kms-health", "x:" + ConfigFolder, false, another},
		"at another path": {"kms-health", "kms-health-config:/x", false, another},
		"no volume":       {"kms-health", "", false, another},
	} {
		t.Run(name, func(t *testing.T) {
			spec := apiServerPod()
			spec.Containers = append(spec.Containers, corev1.Container{Name: c.container, VolumeMounts: mountsOf(c.mounts)})
			if got := Injected(spec); got != c.injected {
				t.Errorf("injected: %t", got)
			}
			_, err := added(sidecarInput(), spec, sidecarPlugins)
			wantError(t, err, c.err)
			spec.InitContainers, spec.Containers = spec.Containers[2:], spec.Containers[:2]
			if _, err := added(sidecarInput(), spec, sidecarPlugins); (err == nil) != (c.container == "x") {
				t.Errorf("an init container: %v", err)
			}
		})
	}
}
