package objects

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	// ConfigVolume holds the reporter's file. A container named contract.ReporterContainer that
	// mounts it at ConfigFolder is the reporter, of any version.
	ConfigVolume = "kms-health-config"
	// CredentialsVolume holds a token, or a client certificate with its key.
	CredentialsVolume = "kms-health-credentials"
	// NoTokenVolume is an empty folder over tokenFolder.
	NoTokenVolume = "kms-health-no-token"

	// ownFolder is the parent of all folders that the reporter's files are mounted at.
	ownFolder = "/etc/kms-health"
	// ConfigFolder is where the reporter finds config.yaml and kubeconfig.
	ConfigFolder = ownFolder + "/config"
	// CredentialsFolder is where the reporter finds token, or tls.crt and tls.key.
	CredentialsFolder = ownFolder + "/credentials"
	servingFolder     = ownFolder + "/serving"
	// tokenFolder is where the ServiceAccount admission plugin mounts a pod's
	// token into every container that mounts nothing there. It would be the API
	// server's own token, and an admin's.
	tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

	// HostConfig and HostClient are the folders, below Input.HostFolder, of the files that
	// ConfigFolder has otherwise, and of the client certificate. The second may be replaced
	// as a whole, as OpenShift's cert-syncer does; a mount of it would keep showing the old
	// one. So its parent is mounted.
	HostConfig = "config"
	HostClient = "credentials/client"
)

// SidecarVolumes are the names of a sidecar's volumes.
var SidecarVolumes = []string{ConfigVolume, CredentialsVolume, NoTokenVolume}

// Sidecar is what pods of an API server get, as a part of their template: the container, its
// volumes, and the annotation with the hash of its plugin set. A Server-Side Apply owns it, and
// a strategic-merge patch adds it. spec is the pods', at a path of their object; it may already
// contain the reporter, and is not changed. A container or volume that is another's and has a
// name of the reporter's is an error, since both would merge the two.
//
// A pod with the reporter also starts without its ConfigMap, its Secret and its host files.
func (in *Input) Sidecar(
	at *field.Path, spec *corev1.PodSpec, plugins []v1alpha1.Plugin,
) (map[string]any, error) {
	added, err := in.added(at, spec, plugins)
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{contract.ConfigHashAnnotation: v1alpha1.PluginSetHash(plugins)},
		},
		Spec: added,
	})
}

// added has the container and its volumes.
func (in *Input) added(
	at *field.Path, spec *corev1.PodSpec, plugins []v1alpha1.Plugin,
) (added corev1.PodSpec, err error) {
	if err := conflicts(at, spec); err != nil {
		return added, err
	}
	mounts, err := socketMounts(at, spec, in.Target.Container, Endpoints(plugins))
	if err != nil {
		return added, err
	}
	own := []corev1.VolumeMount{ // whole folders, since a subPath is never updated
		{Name: ConfigVolume, MountPath: ConfigFolder},
		{Name: CredentialsVolume, MountPath: CredentialsFolder},
		{Name: NoTokenVolume, MountPath: tokenFolder},
	}
	for _, m := range mounts {
		for _, o := range own {
			if err := checkOwn(m.Name, m.MountPath, o.MountPath); err != nil {
				return added, err
			}
		}
	}
	c := bindata.Container{
		Image: in.Config.Image, RunAsUser: in.userOf(spec), Mounts: slices.Concat(mounts, own),
	}
	values := map[string]any{
		"Container": c, "ConfigMap": ConfigMapName(in.Target.Name, plugins), "Secret": TokenName(in.Target.Name),
		"HostConfig": "", "HostCredentials": "",
	}
	if in.Target.OwnerInjects() {
		values["Secret"] = CredentialsName(in.Target.Name)
	}
	if in.HostFolder != "" {
		values["HostConfig"] = path.Join(in.HostFolder, HostConfig)
		values["HostCredentials"] = path.Join(in.HostFolder, path.Dir(HostClient))
	}
	raw, err := bindata.Render("sidecar.yaml", values)
	if err != nil {
		return added, err
	}
	if err := yaml.UnmarshalStrict(raw, &added); err != nil {
		return added, fmt.Errorf("the reporter's container: %w", err)
	}
	return added, nil
}

// userOf is the user of the API server's container, whom its sockets belong to: root if nothing
// else is configured, and for the files of a static pod, which are root's. Nil: the pod's, or the
// image's.
func (in *Input) userOf(spec *corev1.PodSpec) *int64 {
	if in.HostFolder == "" {
		i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == in.Target.Container })
		if at := max(0, i); at < len(spec.Containers) {
			if s := spec.Containers[at].SecurityContext; s != nil && s.RunAsUser != nil {
				return s.RunAsUser
			}
		}
		if s := spec.SecurityContext; s != nil && (s.RunAsUser != nil || s.RunAsNonRoot != nil && *s.RunAsNonRoot) {
			return s.RunAsUser
		}
	}
	return new(int64(0))
}

// Injected reports whether a PodSpec holds the reporter.
func Injected(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return isOurs(&c) })
}

// isOurs distinguishes the reporter, of any version, from another container with its name.
func isOurs(c *corev1.Container) bool {
	return c.Name == contract.ReporterContainer && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == ConfigVolume && m.MountPath == ConfigFolder
	})
}

// conflicts are other containers with the reporter's name, and other containers that mount
// volumes with the names of the reporter's, though the reporter is not there.
func conflicts(at *field.Path, spec *corev1.PodSpec) error {
	var errs field.ErrorList
	injected := Injected(spec)
	check := func(at *field.Path, c *corev1.Container) {
		if c.Name == contract.ReporterContainer {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, fmt.Sprintf("is the name of the reporter's container, "+
				"and this is another one: it does not mount %s at %s", ConfigVolume, ConfigFolder)))
		}
		for i := range c.VolumeMounts {
			if name := c.VolumeMounts[i].Name; !injected && slices.Contains(SidecarVolumes, name) {
				errs = append(errs, field.Invalid(at.Child("volumeMounts").Index(i).Child("name"), name,
					"is the name of a volume of the reporter's, which is not there: give this volume another name"))
			}
		}
	}
	for i := range spec.InitContainers {
		check(at.Child("initContainers").Index(i), &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; !isOurs(c) {
			check(at.Child("containers").Index(i), c)
		}
	}
	return errs.ToAggregate()
}
