package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
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

func fromYAML[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Every field that an API server would default is set (k8s.io/kubernetes, pkg/apis/core/v1/defaults.go), so the object
// read back equals the applied one. The container has no probes: a missing key pair or a port in use must not restart
// the reporter. TestContainerIsTheSameInEveryDelivery shows that the operator's own pods have none either.
func TestSidecar(t *testing.T) {
	in, spec := sidecarInput(), apiServerPod()
	got, err := added(in, spec, sidecarPlugins)
	if err != nil {
		t.Fatal(err)
	}
	want := fromYAML[corev1.Container](t, `
name: kms-health
image: example.com/reporter@sha256:0123
imagePullPolicy: IfNotPresent
args: [--config=/etc/kms-health/config/config.yaml, --state=/var/lib/kms-health/samples]
env:
- name: KMS_HEALTH_NODE
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}
- name: KMS_HEALTH_POD_UID
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.uid}}
- name: KMS_HEALTH_CONFIG_HASH
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['kmshealth.openshift.io/config-hash']"}}
- {name: KMS_HEALTH_API_SERVER_USER, value: "0:0 groups 0 DAC_OVERRIDE"}
resources: {requests: {cpu: 5m, memory: 24Mi}}
volumeMounts:
- {name: kms-sockets, readOnly: true, mountPath: /var/run/kmsplugin}
- {name: kms-health-config, readOnly: true, mountPath: /etc/kms-health/config}
- {name: kms-health-credentials, readOnly: true, mountPath: /etc/kms-health/credentials}
- {name: kms-health-no-token, readOnly: true, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}
- {name: kms-health-state, mountPath: /var/lib/kms-health}
terminationMessagePath: /dev/termination-log
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  runAsUser: 0
  runAsGroup: 0
  runAsNonRoot: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL], add: [DAC_OVERRIDE]}
  seccompProfile: {type: RuntimeDefault}
`)
	if d := cmp.Diff([]corev1.Container{want}, got.Containers); d != "" {
		t.Errorf("container (-want +got):\n%s", d)
	}
	wantVolumes := fromYAML[[]corev1.Volume](t, `
- {name: kms-health-config, configMap: {name: set below, defaultMode: 0644, optional: true}}
- {name: kms-health-credentials, secret: {secretName: kms-health-reporter-oas-token, defaultMode: 0644, optional: true}}
- {name: kms-health-no-token, emptyDir: {}}
- {name: kms-health-state, emptyDir: {sizeLimit: 8Mi}}
`)
	wantVolumes[0].ConfigMap.Name = ConfigMapName("oas", sidecarPlugins)
	if d := cmp.Diff(wantVolumes, got.Volumes); d != "" {
		t.Errorf("volumes (-want +got):\n%s", d)
	}
	spec.Containers, spec.Volumes = append(spec.Containers, got.Containers...), append(spec.Volumes, got.Volumes...)
	if again, err := added(in, spec, sidecarPlugins); err != nil || cmp.Diff(got, again) != "" || !Injected(spec) {
		t.Errorf("in a pod with the reporter: %v, %v", again, err)
	}
}

// A static pod may not refer to API objects such as Secrets and ConfigMaps.
func TestVolumesOfAStaticPodAreFoldersOfTheNode(t *testing.T) {
	in := sidecarInput()
	in.HostFolder = "/etc/kubernetes/kms-health"
	got, err := added(in, apiServerPod(), sidecarPlugins)
	if err != nil {
		t.Fatal(err)
	}
	want := fromYAML[[]corev1.Volume](t, `
- {name: kms-health-config, hostPath: {path: /etc/kubernetes/kms-health/config, type: DirectoryOrCreate}}
- {name: kms-health-credentials, hostPath: {path: /etc/kubernetes/kms-health/credentials, type: DirectoryOrCreate}}
- {name: kms-health-no-token, emptyDir: {}}
- {name: kms-health-state, emptyDir: {sizeLimit: 8Mi}}
`)
	if d := cmp.Diff(want, got.Volumes); d != "" {
		t.Errorf("volumes (-want +got):\n%s", d)
	}
}

func TestOtherContainersAreNotMergedWithTheReporters(t *testing.T) {
	mounts := func(volume, path string) []corev1.VolumeMount {
		return []corev1.VolumeMount{{Name: volume, MountPath: path}}
	}
	reporter, err := added(sidecarInput(), apiServerPod(), sidecarPlugins)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		put  func(*corev1.PodSpec)
		want string
	}{
		"a container with its name": {
			func(s *corev1.PodSpec) {
				s.Containers = append(s.Containers, corev1.Container{Name: "kms-health", VolumeMounts: mounts("other", "/config")})
			},
			`container "kms-health" has the name of the reporter's, and is another one: it does not mount ` +
				`kms-health-config at /etc/kms-health/config`,
		},
		"an init container with its name": {
			func(s *corev1.PodSpec) {
				s.InitContainers = []corev1.Container{{Name: "kms-health", VolumeMounts: mounts("other", ConfigFolder)}}
			},
			`container "kms-health" has the name of the reporter's, and is another one: it does not mount ` +
				`kms-health-config at /etc/kms-health/config`,
		},
		"volumes that are left of an earlier one": {
			func(s *corev1.PodSpec) { s.Volumes = append(s.Volumes, reporter.Volumes...) }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := apiServerPod()
			tt.put(spec)
			_, err := added(sidecarInput(), spec, sidecarPlugins)
			wantError(t, err, tt.want)
		})
	}
}

func TestReporterIsKnownByItsNameAndItsVolume(t *testing.T) {
	mount := corev1.VolumeMount{Name: ConfigVolume, MountPath: ConfigFolder}
	for name, c := range map[string]struct {
		container corev1.Container
		want      bool
	}{
		"ours":            {corev1.Container{Name: "kms-health", VolumeMounts: []corev1.VolumeMount{{Name: "x"}, mount}}, true},
		"another name":    {corev1.Container{Name: "x", VolumeMounts: []corev1.VolumeMount{mount}}, false},
		"another volume":  {corev1.Container{Name: "kms-health", VolumeMounts: []corev1.VolumeMount{{Name: "x", MountPath: ConfigFolder}}}, false},
		"at another path": {corev1.Container{Name: "kms-health", VolumeMounts: []corev1.VolumeMount{{Name: ConfigVolume, MountPath: "/x"}}}, false},
		"no volume":       {corev1.Container{Name: "kms-health"}, false},
	} {
		if got := Injected(&corev1.PodSpec{Containers: []corev1.Container{c.container}}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
