package objects

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// File is the reporter's file for one plugin set.
func (in *Input) File(plugins []v1alpha1.Plugin) []byte {
	c := v1alpha1.ReporterConfiguration{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ReporterKind},
		Probe:    in.Config.Probe,
		Plugins:  []v1alpha1.Plugin{},
		Destination: &v1alpha1.Destination{
			Resource:     in.Target.Resource,
			Kubeconfig:   in.kubeconfigFolder() + "/kubeconfig",
			Servers:      in.servers(),
			WriteTimeout: v1alpha1.Duration{Duration: v1alpha1.DefaultWriteTimeout},

			UnchangedEvery: in.Config.UnchangedEvery,
		},
		Serving: in.serving(),
	}
	if to := in.Target.ReportsTo(); to.PerAPIServer() {
		c.Destination.Name = to.Name
	}
	defaults := v1alpha1.DefaultProbe().Checks
	c.Probe.Checks = cmp.Or(c.Probe.Checks, defaults)
	c.Probe.Checks.RoundTrip.Requested = in.Requested
	if c.Probe.Checks == defaults { // omitted, so that a reporter of another version can read the file
		c.Probe.Checks = v1alpha1.Checks{}
	}
	for _, p := range plugins {
		p.Timeout.Duration = min(p.Timeout.Duration, c.Probe.Interval.Duration)
		c.Plugins = append(c.Plugins, p)
	}
	raw, err := yaml.Marshal(c)
	if err != nil {
		panic(err) // it has been read from YAML
	}
	return raw
}

// servers returns the addresses to write to, the kubeconfig's own first; nil if that is the only one.
func (in *Input) servers() []v1alpha1.Server {
	a := in.Target.Connection
	fallbacks := a.Fallbacks
	if fallbacks == nil && in.ClusterServer != "" && in.ClusterServer != a.Server &&
		(in.Local() || !in.Target.OwnerInjects()) { // the owner's kubeconfig may name another server
		fallbacks = []v1alpha1.Server{{URL: in.ClusterServer}}
	}
	if len(fallbacks) == 0 {
		return nil
	}
	return slices.Concat([]v1alpha1.Server{{URL: a.Server, TLSServerName: a.TLSServerName}}, fallbacks)
}

func (in *Input) serving() *v1alpha1.Serving {
	t := in.Target.Serving
	switch {
	case t == nil:
		return nil
	case t.Secret == "":
		return &v1alpha1.Serving{Address: t.Address}
	}
	tls := in.ServingTLS()
	tls.CertFile, tls.KeyFile = servingFolder+"/tls.crt", servingFolder+"/tls.key"
	tls.ClientCAFile = servingFolder + "/ca.crt"
	return &v1alpha1.Serving{Address: t.Address, TLS: &tls}
}

// ServingTLS is what the target's reporters accept: as configured, else by the cluster's TLS profile.
func (in *Input) ServingTLS() v1alpha1.ServingTLS {
	if s := in.Target.Serving; s != nil && s.TLS != nil {
		return v1alpha1.ServingTLS{MinVersion: s.TLS.MinVersion, CipherSuites: s.TLS.CipherSuites}
	}
	return in.TLS
}

// CAFile is the name of the API server's CA in the folder of a static pod's client certificate.
const CAFile = "ca.crt"

// Kubeconfig is how the target's reporters reach the API server.
func (in *Input) Kubeconfig() []byte {
	credentials := CredentialsFolder
	if in.HostFolder != "" {
		credentials = path.Join(CredentialsFolder, path.Base(HostClient))
	}
	to, certificate := in.Target.Connection, in.Target.OwnerInjects()
	raw, err := yaml.Marshal(object("kubeconfig.yaml", values{
		"SERVER": to.Server, "TLS_SERVER_NAME": when(to.TLSServerName != "", to.TLSServerName),
		"CA_FILE": when(in.HostFolder != "" && len(in.CA) == 0, credentials+"/"+CAFile), "CA": when(len(in.CA) > 0, in.CA),
		"CLIENT_CERTIFICATE": when(certificate, credentials+"/tls.crt"),
		"CLIENT_KEY":         when(certificate, credentials+"/tls.key"),
		"TOKEN_FILE":         when(!certificate, credentials+"/token"),
	}).Object)
	if err != nil {
		panic(err)
	}
	return raw
}

// kubeconfigFolder is the folder of the kubeconfig in the reporter's container: the folder of its file, or of the
// Secret of the pods' owner. A static pod mounts no Secret.
func (in *Input) kubeconfigFolder() string {
	if in.Target.OwnerInjects() && in.HostFolder == "" {
		return CredentialsFolder
	}
	return ConfigFolder
}

// Local reports whether the API server is reached on the node itself.
func (in *Input) Local() bool { return IsLocal(in.Target.Connection.Server) }

// NotReachable returns why reporters in their own pods do not reach a socket; empty: they do. They do not mount some
// folders. They share the node's network, which has abstract sockets, if they reach the API server on their node.
func (in *Input) NotReachable(endpoint string) string {
	if err := v1alpha1.CheckSocketFolder(v1alpha1.SocketFolder(endpoint)); err != nil {
		return endpoint + ": " + err.Error()
	}
	socket, err := v1alpha1.SocketAddress(endpoint)
	if err != nil || !strings.HasPrefix(socket, "@") || in.Local() {
		return ""
	}
	return fmt.Sprintf("%s is in the network of the nodes, which the reporters do not share, since they reach "+
		"the API server at %s: set connection.server to an address of the node itself, as https://localhost:6443, "+
		"or use mode Sidecar", endpoint, in.Target.Connection.Server)
}

// IsLocal reports whether a URL names the machine itself.
func IsLocal(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
}
