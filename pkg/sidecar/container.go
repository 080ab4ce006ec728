package sidecar

import (
	"fmt"
	"maps"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Container returns what Inject adds to a PodSpec, beside the annotation: the
// reporter's container and its volumes. It is what a Server-Side Apply owns.
// spec, which may hold the reporter already, is not changed; it is an error
// where it holds a container or volume of our name that is not ours, since an
// apply would merge the two.
//
// The container has no probe: what is around a reporter is no reason to restart it,
// and a sidecar that restarts makes its API server's pod unready.
//
// Every field that the API server would fill in is there already, so that what
// is read back equals what was put.
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
			// A mount point cannot be made inside a read-only volume: the
			// container would not start.
			if p := path.Clean(m.MountPath); within(own.MountPath, p) || within(p, own.MountPath) {
				return none, nil, fmt.Errorf("volume %q, with the sockets, is mounted at %s, which cannot be together with the reporter's own %s: mount the sockets' folder by itself", m.Name, m.MountPath, own.MountPath)
			}
		}
		mounts = append(mounts, own)
	}
	return corev1.Container{
		Name:                     ContainerName,
		Image:                    o.Image,
		ImagePullPolicy:          o.pullPolicy(),
		Args:                     o.args(),
		Env:                      o.env(),
		Resources:                o.resources(),
		VolumeMounts:             mounts,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          o.securityContext(),
	}, volumes, nil
}

func (o Options) pullPolicy() corev1.PullPolicy {
	if o.ImagePullPolicy == "" {
		return corev1.PullIfNotPresent
	}
	return o.ImagePullPolicy
}

func (o Options) args() []string {
	args := []string{"--config=" + ConfigFolder + "/config.yaml"}
	if o.NodeName != "" {
		args = append(args, "--node-name="+o.NodeName)
	}
	return args
}

func (o Options) env() []corev1.EnvVar {
	var env []corev1.EnvVar
	add := func(name, path string) {
		env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
		}})
	}
	if o.NodeName == "" {
		add(NodeVariable, "spec.nodeName")
	}
	if o.ConfigHash != "" {
		add(ConfigHashVariable, "metadata.annotations['"+ConfigHashAnnotation+"']")
	}
	return env
}

// resources is what was asked for, with a request for every limit, as the API
// server fills in.
func (o Options) resources() corev1.ResourceRequirements {
	if o.Resources == nil {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("5m"),
			corev1.ResourceMemory: resource.MustParse("24Mi"),
		}}
	}
	r := *o.Resources.DeepCopy()
	if len(r.Limits) > 0 {
		requests := r.Limits.DeepCopy()
		maps.Copy(requests, r.Requests)
		r.Requests = requests
	}
	return r
}

func (o Options) securityContext() *corev1.SecurityContext {
	yes, no := true, false
	c := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if o.RunAsUser != nil {
		// Said in any case: a pod's own runAsNonRoot would refuse user 0.
		user, nonRoot := *o.RunAsUser, *o.RunAsUser != 0
		c.RunAsUser, c.RunAsNonRoot = &user, &nonRoot
	}
	return c
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

// hostFolder is made where it is missing: the pod would wait for it else.
func hostFolder(p string) *corev1.HostPathVolumeSource {
	kind := corev1.HostPathDirectoryOrCreate
	return &corev1.HostPathVolumeSource{Path: p, Type: &kind}
}
