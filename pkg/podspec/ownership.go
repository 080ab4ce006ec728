package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Injected reports whether a PodSpec holds the reporter.
func Injected(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return isOurs(&c) })
}

// isOurs distinguishes the reporter, of any version, from a third-party container with
// its name.
func isOurs(c *corev1.Container) bool {
	return c.Name == ContainerName && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == ConfigVolume && m.MountPath == ConfigFolder
	})
}

// isOurVolume distinguishes the reporter's volume from a third-party one with its name.
// It is the reporter's if the reporter mounts it; one that no container mounts is a
// remainder of an earlier injection if it has the form of an injected volume.
func isOurVolume(spec *corev1.PodSpec, v *corev1.Volume) bool {
	var form bool
	switch v.Name {
	case ConfigVolume:
		form = v.HostPath != nil || v.ConfigMap != nil && isTrue(v.ConfigMap.Optional)
	case CredentialsVolume:
		form = v.HostPath != nil || v.Secret != nil && isTrue(v.Secret.Optional)
	case NoTokenVolume:
		form = v.EmptyDir != nil
	default:
		return false
	}
	ours, theirs := mountedBy(spec, v.Name)
	return ours || form && theirs == ""
}

// mountedBy reports whether the reporter mounts a volume, and names one of the
// other containers that do.
func mountedBy(spec *corev1.PodSpec, volume string) (ours bool, theirs string) {
	visit := func(c *corev1.Container) {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) {
			return
		}
		if isOurs(c) {
			ours = true
		} else {
			theirs = c.Name
		}
	}
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		visit(&corev1.Container{Name: spec.EphemeralContainers[i].Name, VolumeMounts: spec.EphemeralContainers[i].VolumeMounts})
	}
	return ours, theirs
}

// collisions are third-party containers and volumes with the reporter's names.
func collisions(at *field.Path, spec *corev1.PodSpec) error {
	var errs field.ErrorList
	taken := func(at *field.Path, name, why string) {
		errs = append(errs, field.Invalid(at.Child("name"), name, why))
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == ContainerName {
			taken(at.Child("initContainers").Index(i), ContainerName, "is the name of the reporter's container, which is no init container")
		}
	}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == ContainerName && !isOurs(c) {
			taken(at.Child("containers").Index(i), ContainerName, fmt.Sprintf("is the name of the reporter's container, and this is another's: it does not mount %s at %s", ConfigVolume, ConfigFolder))
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if !slices.Contains([]string{ConfigVolume, CredentialsVolume, NoTokenVolume}, v.Name) || isOurVolume(spec, v) {
			continue
		}
		why := "is the name of a volume of the reporter's, and this is another's"
		if _, theirs := mountedBy(spec, v.Name); theirs != "" {
			why += fmt.Sprintf(": container %q mounts it", theirs)
		}
		taken(at.Child("volumes").Index(i), v.Name, why)
	}
	return errs.ToAggregate()
}

func isTrue(b *bool) bool { return b != nil && *b }
