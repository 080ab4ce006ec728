package manifests

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/podspec"
)

// File is the reporter's file for one plugin set.
func (in *Input) File(plugins []v1alpha1.Plugin) ([]byte, error) {
	c := v1alpha1.ReporterConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ReporterKind},
		Probe:    in.Config.Probe,
		Plugins:  []v1alpha1.Plugin{},
		Destination: &v1alpha1.Destination{
			Resource:     in.Target.Resource,
			Format:       in.Config.Format,
			Kubeconfig:   podspec.ConfigFolder + "/kubeconfig",
			Servers:      in.servers(),
			WriteTimeout: metav1.Duration{Duration: v1alpha1.DefaultWriteTimeout},
		},
		Serving: in.serving(),
	}
	if destination := in.ReportsTo(); destination.PerTarget() {
		c.Destination.Resource, c.Destination.Object = "", &v1alpha1.ObjectReference{
			Group: destination.Group, Version: destination.Version, Resource: destination.Plural, Kind: destination.Kind, Name: destination.Name,
		}
	}
	// A default is left out, so that a reporter of another version can read the file.
	if checks := c.Probe.Checks; checks != nil && *checks == *v1alpha1.DefaultChecks() {
		c.Probe.Checks = nil
	}
	for _, p := range plugins {
		p.Timeout.Duration = min(p.Timeout.Duration, c.Probe.Interval.Duration)
		c.Plugins = append(c.Plugins, p)
	}
	return yaml.Marshal(c)
}

// servers are the addresses to write to, where there is more than one: the kubeconfig's
// own comes first.
func (in *Input) servers() []v1alpha1.Server {
	a := in.Target.APIServer
	fallbacks := a.Fallbacks
	if fallbacks == nil && in.local() && in.ClusterServer != "" && !v1alpha1.SameServer(in.ClusterServer, a.Server) {
		fallbacks = []v1alpha1.Server{{URL: in.ClusterServer}}
	}
	if len(fallbacks) == 0 {
		return nil
	}
	return slices.Concat([]v1alpha1.Server{{URL: a.Server, TLSServerName: a.TLSServerName}}, fallbacks)
}

func (in *Input) serving() *v1alpha1.Serving {
	t := in.Target.Serving
	if t == nil {
		return nil
	}
	s := &v1alpha1.Serving{Address: t.Address}
	if t.Secret != "" {
		s.TLS = &v1alpha1.ServingTLS{
			CertFile:     podspec.ServingFolder + "/tls.crt",
			KeyFile:      podspec.ServingFolder + "/tls.key",
			ClientCAFile: podspec.ServingFolder + "/ca.crt",
			MinVersion:   in.TLS.MinVersion,
			CipherSuites: in.TLS.CipherSuites,
		}
	}
	return s
}

// Kubeconfig is how the target's reporters reach the API server.
func (in *Input) Kubeconfig() ([]byte, error) {
	return bindata.Render("kubeconfig.yaml", map[string]any{
		"Server":            in.Target.APIServer.Server,
		"TLSServerName":     in.Target.APIServer.TLSServerName,
		"CAFile":            in.CAFile,
		"CAData":            in.CA, // []byte: JSON makes it base64
		"CredentialsFolder": in.credentialsFolder(),
		"ClientCertificate": in.Target.Credentials == v1alpha1.CredentialsClientCertificate,
	})
}

func (in *Input) credentialsFolder() string {
	if in.CredentialsFolder != "" {
		return in.CredentialsFolder
	}
	return podspec.CredentialsFolder
}

// configHash is the hash in a pod's annotation, of the part of the file whose change
// replaces the pod: the plugin set, or all of it. The reporter compares it.
func (in *Input) configHash(file []byte, plugins []v1alpha1.Plugin) string {
	if in.Config.Rollout == v1alpha1.RolloutAlways {
		return v1alpha1.FileHash(file)
	}
	return v1alpha1.PluginSetHash(plugins)
}

// local reports whether the API server is reached on the node itself.
func (in *Input) local() bool { return IsLocal(in.Target.APIServer.Server) }

// OnlyNodeServer reports whether reporters write through the API server of their own node,
// and have no other.
func (in *Input) OnlyNodeServer() bool { return in.local() && len(in.servers()) == 0 }

// IsLocal reports whether a URL is of the machine itself.
func IsLocal(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}
