// Package podspec makes the reporter's container for the pods of an API server.
//
// Container is what a Server-Side Apply owns, and what a strategic-merge patch adds. A
// container or volume that is another's and has a name of the reporter's is an error, since
// both would merge the two.
//
// The package is pure: it uses no file, no clock and no network. The caller must make sure
// that the image can be pulled and that the files exist; a pod with the reporter also
// starts without its ConfigMap, its Secret and its host files.
package podspec

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kms-health/kms-health/bindata"
	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	// ConfigVolume holds the reporter's file. A container named contract.ReporterContainer that
	// mounts it at ConfigFolder is the reporter, of any version.
	ConfigVolume = "kms-health-config"
	// CredentialsVolume holds a token, or a client certificate with its key.
	CredentialsVolume = "kms-health-credentials"
	// NoTokenVolume is an empty folder over TokenFolder.
	NoTokenVolume = "kms-health-no-token"

	// OwnFolder is the parent of all folders that the reporter's files are mounted at.
	OwnFolder = "/etc/kms-health"
	// ConfigFolder is where the reporter finds config.yaml and kubeconfig.
	ConfigFolder = OwnFolder + "/config"
	// CredentialsFolder is where the reporter finds token, or tls.crt and tls.key.
	CredentialsFolder = OwnFolder + "/credentials"
	// ServingFolder is where the reporter finds the key pair that it serves with.
	ServingFolder = OwnFolder + "/serving"
	// TokenFolder is where the ServiceAccount admission plugin mounts a pod's
	// token into every container that mounts nothing there. It would be the API
	// server's own token, and an admin's.
	TokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

	// HostConfig and HostClient are the folders, below Options.HostFolder, of the files that
	// ConfigFolder has otherwise, and of the client certificate. The second may be replaced
	// as a whole, as OpenShift's cert-syncer does; a mount of it would keep showing the old
	// one. So its parent is mounted.
	HostConfig = "config"
	HostClient = "credentials/client"
)

// Volumes are the names of the reporter's volumes.
var Volumes = []string{ConfigVolume, CredentialsVolume, NoTokenVolume}

// Options configure the reporter's container.
type Options struct {
	Image string // its entrypoint is the binary

	// APIServerContainer is the container whose mounts hold the sockets; empty: the first one
	// that is not the reporter's.
	APIServerContainer string
	// Endpoints of the plugins, as in the reporter's file.
	Endpoints []string

	// ConfigMap holds config.yaml, and kubeconfig where there is a destination; Secret the
	// credentials.
	ConfigMap, Secret string
	// HostFolder is the folder of the node, an absolute path, with the files of a static pod,
	// which may refer to neither. What is missing of it is created, so that no API server
	// waits for it.
	HostFolder string

	// ConfigHash is the value of contract.ConfigHashAnnotation.
	ConfigHash string
	// RunAsUser is the user, which must be allowed to write to the sockets and
	// to read the files: 0 for host files, which are root's. Nil: the pod's, or the image's.
	RunAsUser *int64
}

// Container returns the reporter's container for a PodSpec at a path of an object, and its
// volumes. spec, which may already contain the reporter, is not changed.
//
// The container is that of bindata/container.yaml, which the operator's own pods have, too.
func Container(at *field.Path, spec *corev1.PodSpec, o Options) (corev1.Container, []corev1.Volume, error) {
	var none corev1.Container
	if err := conflicts(at, spec); err != nil {
		return none, nil, err
	}
	sockets, err := socketMounts(at, spec, o.APIServerContainer, o.Endpoints)
	if err != nil {
		return none, nil, err
	}
	own := []bindata.Mount{ // whole folders, since a subPath is never updated
		{Name: ConfigVolume, MountPath: ConfigFolder},
		{Name: CredentialsVolume, MountPath: CredentialsFolder},
		{Name: NoTokenVolume, MountPath: TokenFolder},
	}
	var mounts []bindata.Mount
	for _, m := range sockets {
		i := slices.IndexFunc(own, func(o bindata.Mount) bool { return Overlap(m.MountPath, o.MountPath) })
		if i >= 0 {
			return none, nil, fmt.Errorf("volume %q, with the sockets, is mounted at %s, which conflicts with the reporter's own "+
				"mount at %s: mount the sockets' folder separately", m.Name, m.MountPath, own[i].MountPath)
		}
		mounts = append(mounts, bindata.Mount{Name: m.Name, MountPath: m.MountPath, SubPath: m.SubPath})
	}
	values := map[string]any{
		"Container": bindata.Container{
			Image: o.Image, ConfigHash: o.ConfigHash, RunAsUser: o.RunAsUser, Mounts: slices.Concat(mounts, own),
		},
		"ConfigMap": o.ConfigMap, "Secret": o.Secret, "HostConfig": "", "HostCredentials": "",
	}
	if o.HostFolder != "" {
		values["HostConfig"] = path.Join(o.HostFolder, HostConfig)
		values["HostCredentials"] = path.Join(o.HostFolder, path.Dir(HostClient))
	}
	raw, err := bindata.Render("sidecar.yaml", values)
	if err != nil {
		return none, nil, err
	}
	var added corev1.PodSpec
	if err := yaml.UnmarshalStrict(raw, &added); err != nil {
		return none, nil, fmt.Errorf("the reporter's container: %w", err)
	}
	return added.Containers[0], added.Volumes, nil
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
			if name := c.VolumeMounts[i].Name; !injected && slices.Contains(Volumes, name) {
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
