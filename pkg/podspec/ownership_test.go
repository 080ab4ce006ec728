package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestThirdPartyContainersAndVolumesAreKept(t *testing.T) {
	mounts := func(volume, path string) []corev1.VolumeMount {
		return []corev1.VolumeMount{{Name: volume, MountPath: path}}
	}
	optionalConfig := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Optional: pointer(true)}}
	for name, tt := range map[string]struct {
		put  func(*corev1.PodSpec)
		want string
	}{
		"a container with the reporter's name": {
			func(s *corev1.PodSpec) {
				s.Containers = append(s.Containers, corev1.Container{Name: "kms-health", Image: "theirs"})
			},
			`spec.containers[2].name: Invalid value: "kms-health": is the name of the reporter's container, and this is another's: it does not mount kms-health-config at /etc/kms-health/config`,
		},
		"a container with the reporter's name with the reporter's volume elsewhere": {
			func(s *corev1.PodSpec) {
				s.Containers = append(s.Containers, corev1.Container{Name: "kms-health", VolumeMounts: mounts(ConfigVolume, "/config")})
				s.Volumes = append(s.Volumes, corev1.Volume{Name: ConfigVolume, VolumeSource: optionalConfig})
			},
			`[spec.containers[2].name: Invalid value: "kms-health": is the name of the reporter's container, and this is another's: it does not mount kms-health-config at /etc/kms-health/config, ` +
				`spec.volumes[1].name: Invalid value: "kms-health-config": is the name of a volume of the reporter's, and this is another's: container "kms-health" mounts it]`,
		},
		"an init container with the reporter's name": {
			func(s *corev1.PodSpec) {
				s.InitContainers = []corev1.Container{{Name: "kms-health", VolumeMounts: mounts("other", ConfigFolder)}}
			},
			`spec.initContainers[0].name: Invalid value: "kms-health": is the name of the reporter's container, which is no init container`,
		},
		"a volume with the reporter's name that another container mounts": {
			func(s *corev1.PodSpec) {
				s.Volumes = append(s.Volumes, corev1.Volume{Name: ConfigVolume, VolumeSource: optionalConfig})
				s.Containers[1].VolumeMounts = mounts(ConfigVolume, ConfigFolder)
			},
			`spec.volumes[1].name: Invalid value: "kms-health-config": is the name of a volume of the reporter's, and this is another's: container "kms-plugin" mounts it`,
		},
		"a volume with the reporter's name that an init container mounts": {
			func(s *corev1.PodSpec) {
				s.Volumes = append(s.Volumes, corev1.Volume{Name: NoTokenVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
				s.InitContainers = []corev1.Container{{Name: "setup", VolumeMounts: mounts(NoTokenVolume, "/x")}}
			},
			`spec.volumes[1].name: Invalid value: "kms-health-no-token": is the name of a volume of the reporter's, and this is another's: container "setup" mounts it`,
		},
		"a volume with the reporter's name that a debugger mounts": {
			func(s *corev1.PodSpec) {
				s.Volumes = append(s.Volumes, corev1.Volume{Name: NoTokenVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
				s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", VolumeMounts: mounts(NoTokenVolume, "/x")}}}
			},
			`spec.volumes[1].name: Invalid value: "kms-health-no-token": is the name of a volume of the reporter's, and this is another's: container "debugger" mounts it`,
		},
		"a volume with the reporter's name in another form": {
			func(s *corev1.PodSpec) {
				s.Volumes = append(s.Volumes, corev1.Volume{Name: CredentialsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "theirs"}}})
			},
			`spec.volumes[1].name: Invalid value: "kms-health-credentials": is the name of a volume of the reporter's, and this is another's`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec, before := apiServerPod(), apiServerPod()
			tt.put(spec)
			tt.put(before)
			meta := &metav1.ObjectMeta{}
			wantError(t, Inject(meta, spec, inDeployment()), tt.want)
			if Injected(spec) {
				t.Error("it is treated as the reporter's")
			}
			if d := cmp.Diff(before, spec); d != "" {
				t.Errorf("pod (-before +after):\n%s", d)
			}
		})
	}
}

func TestRemaindersOfAnInjectionAreReplaced(t *testing.T) {
	remainder := func() (*metav1.ObjectMeta, *corev1.PodSpec) {
		meta, spec := &metav1.ObjectMeta{}, apiServerPod()
		inject(t, meta, spec, inStaticPod())
		spec.Containers = spec.Containers[:2] // someone removed only the container
		return meta, spec
	}
	meta, spec := remainder()
	inject(t, meta, spec, inDeployment())
	want := apiServerPod()
	inject(t, &metav1.ObjectMeta{}, want, inDeployment())
	if d := cmp.Diff(want, spec); d != "" {
		t.Errorf("injected (-want +got):\n%s", d)
	}
}

func TestAnInjectedVolumeThatAnotherContainerMountsIsKept(t *testing.T) {
	meta, spec := &metav1.ObjectMeta{}, apiServerPod()
	inject(t, meta, spec, inDeployment())
	spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: CredentialsVolume, MountPath: "/look"}}

	o := inDeployment()
	o.Secret = ""
	inject(t, meta, spec, o) // which no longer needs credentials
	names := func() (names []string) {
		for _, v := range spec.Volumes {
			names = append(names, v.Name)
		}
		return names
	}
	if d := cmp.Diff([]string{"kms-sockets", ConfigVolume, CredentialsVolume, NoTokenVolume}, names()); d != "" {
		t.Errorf("volumes (-want +got):\n%s", d)
	}
}
