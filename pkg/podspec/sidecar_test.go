package podspec

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// endpoint is a plugin's, in the folder that apiServerPod mounts.
const endpoint = "unix:///var/run/kmsplugin/kms-2.sock"

// inDeployment are options as for a pod template of a Deployment.
func inDeployment() Options {
	return Options{
		Image:      "example.com/reporter@sha256:0123",
		Endpoints:  []string{endpoint},
		ConfigMap:  "kms-health-reporter",
		Secret:     "kms-health-token",
		ConfigHash: "abc",
	}
}

// inStaticPod are options as for a manifest that OpenShift's installer writes.
func inStaticPod() Options {
	root := int64(0)
	return Options{
		Image:     "example.com/reporter@sha256:0123",
		Endpoints: []string{endpoint},
		HostFiles: &HostFiles{
			ConfigFolder:      "/etc/kubernetes/static-pod-resources/kms-health",
			CredentialsFolder: "/etc/kubernetes/static-pod-resources/certs/secrets/kms-health-client",
		},
		ConfigHash: "abc",
		NodeName:   InstallerNodeName,
		RunAsUser:  &root,
	}
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
		Volumes: []corev1.Volume{{Name: "kms-sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

func fromYAML[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func pointer[T any](v T) *T { return &v }

// wantError fails the test where an error does not read as wanted; "" is none.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("error (-want +got):\n%s", d)
	}
}

// removeOurs removes what an injection added, by our names.
func removeOurs(p *corev1.PodTemplateSpec) {
	p.Spec.Containers = slices.DeleteFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == ContainerName })
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return slices.Contains([]string{ConfigVolume, CredentialsVolume, NoTokenVolume}, v.Name)
	})
	delete(p.Annotations, ConfigHashAnnotation)
}
