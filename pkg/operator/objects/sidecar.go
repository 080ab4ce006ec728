package objects

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	// ConfigVolume holds the reporter's file. A container named contract.ReporterContainer that
	// mounts it at ConfigFolder is the reporter, of any version.
	ConfigVolume = "kms-health-config"
	// credentialsVolume holds a token, or a client certificate with its key.
	credentialsVolume = "kms-health-credentials"
	// NoTokenVolume is an empty folder that is mounted at tokenFolder.
	NoTokenVolume = "kms-health-no-token"

	// ownFolder is the parent of all folders that the reporter's files are mounted at.
	ownFolder = "/etc/kms-health"
	// ConfigFolder is where the reporter finds config.yaml and kubeconfig.
	ConfigFolder = ownFolder + "/config"
	// CredentialsFolder is where the reporter finds token, or tls.crt and tls.key.
	CredentialsFolder = ownFolder + "/credentials"
	servingFolder     = ownFolder + "/serving"
	// tokenFolder is where the ServiceAccount admission plugin mounts a pod's token into every container that mounts
	// nothing there. In an API server's pod that is the API server's token, often with an administrator's rights.
	tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

	// HostConfig and HostClient are folders below Input.HostFolder: of the files that are otherwise in ConfigFolder, and
	// of the client certificate. The latter may be replaced as a whole, as OpenShift's cert-syncer does. A mount of it
	// would keep showing the old folder, so its parent is mounted.
	HostConfig = "config"
	HostClient = "credentials/client"
)

// Sidecar returns what pods of an API server get, as a part of their template: the container, its volumes, and the
// annotation with the hash of its plugin set. It fits a Server-Side Apply and a strategic-merge patch. spec is the
// pods', and may already contain the reporter. Another container with the reporter's name is an error, since an apply
// or a patch would merge the two. The pods also start without the reporter's ConfigMap, Secret and host files.
func (in *Input) Sidecar(spec *corev1.PodSpec, plugins []v1alpha1.Plugin) (map[string]any, error) {
	for at, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if c.Name == contract.ReporterContainer && (at < len(spec.InitContainers) || !isReporter(c)) {
			return nil, fmt.Errorf("container %q has the name of the reporter's, and is another one: it does not mount %s at %s",
				c.Name, ConfigVolume, ConfigFolder)
		}
	}
	mounts, err := SocketMounts(spec, in.Target.Container, plugins...)
	if err != nil {
		return nil, err
	}
	own := []corev1.VolumeMount{ // whole folders, since a subPath is never updated
		{Name: ConfigVolume, MountPath: ConfigFolder},
		{Name: credentialsVolume, MountPath: CredentialsFolder},
		{Name: NoTokenVolume, MountPath: tokenFolder},
	}
	for _, m := range mounts {
		err := checkOwn(m.Name, m.MountPath, ConfigFolder, CredentialsFolder, tokenFolder, contract.StateFolder)
		if err != nil {
			return nil, err
		}
	}
	c, _ := APIServerContainer(spec, in.Target.Container) // SocketMounts found it
	configured, known := configuredUser(spec, c)
	user := &configured
	if !known {
		user = nil
	}
	runAs, static := user, in.HostFolder != ""
	if static { // its files are root's
		runAs = &contract.User{DACOverride: known && configured.DACOverride}
	}
	return object("sidecar.yaml", values{
		"CONFIG_HASH": v1alpha1.PluginSetHash(plugins), "CONTAINER": in.container(user, runAs, slices.Concat(mounts, own)),
		"HOST_CONFIG": when(static, in.HostFolder+"/config"), "HOST_CREDENTIALS": when(static, in.HostFolder+"/credentials"),
		"CONFIG_MAP": when(!static, ConfigMapName(in.Target.Name, plugins)), "SECRET": when(!static, in.Secret()),
	}).Object, nil
}

// Secret is the name of the Secret with a sidecar's credentials: a token, or a kubeconfig and the files that it names.
// The operator neither reads nor writes those, which the pods' owner provides.
func (in *Input) Secret() string {
	if in.Target.OwnerInjects() {
		return contract.ReporterName(in.Target.Name) + "-credentials"
	}
	return TokenName(in.Target.Name)
}

// Injected reports whether a PodSpec holds the reporter.
func Injected(spec *corev1.PodSpec) bool { return slices.ContainsFunc(spec.Containers, isReporter) }

// isReporter distinguishes the reporter, of any version, from another container with its name.
func isReporter(c corev1.Container) bool {
	return c.Name == contract.ReporterContainer && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == ConfigVolume && m.MountPath == ConfigFolder
	})
}
