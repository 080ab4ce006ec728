package podspec

import (
	"path"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Options configure the injected container.
type Options struct {
	// Image of the reporter; its entrypoint is the binary. Required.
	Image string

	// APIServerContainer is the container whose mounts hold the sockets. Left
	// out: the first container.
	APIServerContainer string
	// Endpoints of the plugins, as in the reporter's file.
	Endpoints []string

	// ConfigMap holds config.yaml, and kubeconfig where there is a destination.
	// Required unless there are HostFiles.
	ConfigMap string
	// Secret holds the credentials. Left out: there are none.
	Secret string
	// HostFiles replaces ConfigMap and Secret in static pods, which may refer to
	// neither.
	HostFiles *HostFiles

	// ConfigHash is the value of ConfigHashAnnotation. Left out: there is no
	// such annotation.
	ConfigHash string
	// NodeName is the node that is reported on. Left out: the pod's own, by the
	// downward API. InstallerNodeName is for manifests that OpenShift's static
	// pod installer writes.
	NodeName string

	// RunAsUser is the user, which must be allowed to write to the sockets and
	// to read the files: 0 for HostFiles, which are root's. Left out: the
	// pod's, or the image's.
	RunAsUser *int64
}

// HostFiles are folders of the node, absolute paths. They are created if they are
// missing, so that no API server waits for them.
type HostFiles struct {
	// ConfigFolder holds config.yaml, and kubeconfig where there is a
	// destination. It is mounted itself: its files may be replaced at any time,
	// and the folder only together with the pod.
	ConfigFolder string
	// CredentialsFolder holds tls.crt and tls.key, or token. It may be
	// replaced as a whole, as OpenShift's cert-syncer does; a mount of it would
	// keep showing the old folder. So its parent is mounted, with its whole
	// content. Left out: there are no credentials.
	CredentialsFolder string
}

// Credentials returns the folder in which the reporter's container finds its
// credentials: what a kubeconfig must name. It is empty where there are none.
func (o Options) Credentials() string {
	switch {
	case o.HostFiles == nil && o.Secret != "":
		return CredentialsFolder
	case o.HostFiles != nil && o.HostFiles.CredentialsFolder != "":
		return path.Join(CredentialsFolder, path.Base(o.HostFiles.CredentialsFolder))
	}
	return ""
}

func (o Options) validate() error {
	var errs field.ErrorList
	if o.Image == "" {
		errs = append(errs, field.Required(field.NewPath("image"), "the reporter's image"))
	}
	if o.APIServerContainer == ContainerName {
		errs = append(errs, field.Invalid(field.NewPath("apiServerContainer"), o.APIServerContainer, "is the reporter's own container"))
	}
	if o.HostFiles != nil {
		errs = append(errs, o.validateHostFiles(field.NewPath("hostFiles"))...)
	} else {
		errs = append(errs, objectName(field.NewPath("configMap"), o.ConfigMap)...)
		if o.Secret != "" {
			errs = append(errs, objectName(field.NewPath("secret"), o.Secret)...)
		}
	}
	if o.NodeName != "" && o.NodeName != InstallerNodeName {
		errs = append(errs, objectName(field.NewPath("nodeName"), o.NodeName)...)
	}
	if o.RunAsUser != nil {
		for _, why := range validation.IsValidUserID(*o.RunAsUser) {
			errs = append(errs, field.Invalid(field.NewPath("runAsUser"), *o.RunAsUser, why))
		}
	}
	return errs.ToAggregate()
}

func (o Options) validateHostFiles(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if o.ConfigMap != "" || o.Secret != "" {
		errs = append(errs, field.Forbidden(at, "is not allowed together with configMap or secret"))
	}
	config, credentials := o.HostFiles.ConfigFolder, o.HostFiles.CredentialsFolder
	if !isFolder(config) {
		errs = append(errs, field.Invalid(at.Child("configFolder"), config, "must be the absolute path of a folder, without . or .. or a final /"))
	}
	switch {
	case credentials == "":
	case !isFolder(credentials):
		errs = append(errs, field.Invalid(at.Child("credentialsFolder"), credentials, "must be the absolute path of a folder, without . or .. or a final /"))
	case path.Dir(credentials) == "/":
		errs = append(errs, field.Invalid(at.Child("credentialsFolder"), credentials, "must be two folders deep: its parent is mounted"))
	}
	return errs
}

func isFolder(p string) bool { return path.IsAbs(p) && p != "/" && path.Clean(p) == p }

func objectName(at *field.Path, name string) field.ErrorList {
	var errs field.ErrorList
	for _, why := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(at, name, why))
	}
	return errs
}
