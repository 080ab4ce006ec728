package podspec

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kms-health/kms-health/bindata"
)

// Container returns what Inject adds to a PodSpec, without the annotation: the
// reporter's container and its volumes. It is what a Server-Side Apply owns.
// spec, which may already contain the reporter, is not changed; it is an error
// if it contains a third-party container or volume with the reporter's name, since an
// apply would merge the two.
//
// The container is that of bindata/container.yaml, which the operator's own pods have,
// too.
func Container(spec *corev1.PodSpec, o Options) (corev1.Container, []corev1.Volume, error) {
	return container(field.NewPath("spec"), spec, o)
}

func container(at *field.Path, spec *corev1.PodSpec, o Options) (corev1.Container, []corev1.Volume, error) {
	var none corev1.Container
	if err := o.validate(); err != nil {
		return none, nil, fmt.Errorf("options: %w", err)
	}
	if err := collisions(at, spec); err != nil {
		return none, nil, err
	}
	mounts, err := socketMounts(at, spec, o.APIServerContainer, o.Endpoints)
	if err != nil {
		return none, nil, err
	}
	volumes := o.volumes()
	for _, own := range o.mounts() {
		for _, m := range mounts {
			if Overlap(m.MountPath, own.MountPath) {
				return none, nil, fmt.Errorf("volume %q, with the sockets, is mounted at %s, which conflicts with the reporter's own mount at %s: mount the sockets' folder separately", m.Name, m.MountPath, own.MountPath)
			}
		}
		mounts = append(mounts, own)
	}
	values := bindata.Container{Image: o.Image, ConfigHash: o.ConfigHash, NodeName: o.NodeName, RunAsUser: o.RunAsUser}
	for _, m := range mounts {
		values.Mounts = append(values.Mounts, bindata.Mount{Name: m.Name, MountPath: m.MountPath, SubPath: m.SubPath})
	}
	raw, err := bindata.Render("container", values)
	if err != nil {
		return none, nil, err
	}
	var c corev1.Container
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return none, nil, fmt.Errorf("the reporter's container: %w", err)
	}
	return c, volumes, nil
}

// mounts are those of our own volumes: whole folders, since a subPath is never
// updated.
func (o Options) mounts() []corev1.VolumeMount {
	mounts := []corev1.VolumeMount{{Name: ConfigVolume, ReadOnly: true, MountPath: ConfigFolder}}
	if o.Credentials() != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: CredentialsVolume, ReadOnly: true, MountPath: CredentialsFolder})
	}
	return append(mounts, corev1.VolumeMount{Name: NoTokenVolume, ReadOnly: true, MountPath: TokenFolder})
}

func (o Options) volumes() []corev1.Volume {
	var config, credentials corev1.VolumeSource
	if o.HostFiles != nil {
		config.HostPath = hostFolder(o.HostFiles.ConfigFolder)
		credentials.HostPath = hostFolder(path.Dir(o.HostFiles.CredentialsFolder))
	} else {
		mode, optional := corev1.ConfigMapVolumeSourceDefaultMode, true
		config.ConfigMap = &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: o.ConfigMap}, DefaultMode: &mode, Optional: &optional}
		secretMode, secretOptional := corev1.SecretVolumeSourceDefaultMode, true
		credentials.Secret = &corev1.SecretVolumeSource{
			SecretName: o.Secret, DefaultMode: &secretMode, Optional: &secretOptional}
	}
	volumes := []corev1.Volume{{Name: ConfigVolume, VolumeSource: config}}
	if o.Credentials() != "" {
		volumes = append(volumes, corev1.Volume{Name: CredentialsVolume, VolumeSource: credentials})
	}
	return append(volumes, corev1.Volume{Name: NoTokenVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
}

// hostFolder is created if it is missing: otherwise the pod would wait for it.
func hostFolder(p string) *corev1.HostPathVolumeSource {
	kind := corev1.HostPathDirectoryOrCreate
	return &corev1.HostPathVolumeSource{Path: p, Type: &kind}
}
