package objects

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kms-health/kms-health/pkg/contract"
)

// UserOf returns the user of an API server's container: as the node reports it, else as the pod has it, else root.
// known means that the container was created. A node that reports users has reported this one by then.
func UserOf(pod *corev1.Pod, container string) (user contract.User, known bool) {
	c, err := APIServerContainer(&pod.Spec, container)
	if err != nil {
		return contract.Root, false
	}
	user, _ = configuredUser(&pod.Spec, c)
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != c.Name {
			continue
		}
		known = s.ContainerID != ""
		if s.User != nil && s.User.Linux != nil {
			user.UID, user.GID, user.Groups = s.User.Linux.UID, s.User.Linux.GID, s.User.Linux.SupplementalGroups
			user.DACOverride, known = overridesDAC(user.UID, c.SecurityContext), true
		}
	}
	return user, known
}

// configuredUser returns the user that a PodSpec has for a container, root if it has none. known is false if the
// image decides it, and it must not be root. The pod's fsGroup is one of the supplementary groups of each of its
// containers.
func configuredUser(spec *corev1.PodSpec, c *corev1.Container) (user contract.User, known bool) {
	own := cmp.Or(c.SecurityContext, &corev1.SecurityContext{})
	pods := cmp.Or(spec.SecurityContext, &corev1.PodSecurityContext{})
	uid, gid := cmp.Or(own.RunAsUser, pods.RunAsUser), cmp.Or(own.RunAsGroup, pods.RunAsGroup)
	user = contract.User{UID: ptr.Deref(uid, 0), GID: ptr.Deref(gid, 0), Groups: slices.Clone(pods.SupplementalGroups)}
	if pods.FSGroup != nil {
		user.Groups = append(user.Groups, *pods.FSGroup)
	}
	user.DACOverride = overridesDAC(user.UID, own)
	// Container runtimes give container_t to a container by default, and spc_t to a privileged one.
	options := cmp.Or(own.SELinuxOptions, pods.SELinuxOptions, &corev1.SELinuxOptions{})
	user.OwnSELinuxType = ptr.Deref(own.Privileged, false) || options.Type != "" && options.Type != "container_t"
	return user, uid != nil || !ptr.Deref(cmp.Or(own.RunAsNonRoot, pods.RunAsNonRoot), false)
}

// overridesDAC reports whether a container of a user has the capability DAC_OVERRIDE, by the rules of container
// runtimes. Root has it by default. If it is both added and dropped, drop wins; but an added one stays if ALL is
// dropped.
func overridesDAC(uid int64, own *corev1.SecurityContext) bool {
	own = cmp.Or(own, &corev1.SecurityContext{})
	capabilities := cmp.Or(own.Capabilities, &corev1.Capabilities{})
	names := func(list []corev1.Capability, name string) bool {
		return slices.ContainsFunc(list, func(c corev1.Capability) bool {
			return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_") == name
		})
	}
	switch {
	case uid != 0:
		return false
	case ptr.Deref(own.Privileged, false):
		return true
	case names(capabilities.Drop, contract.DACOverride):
		return false
	default:
		return names(capabilities.Add, contract.DACOverride) || !names(capabilities.Drop, "ALL")
	}
}
