package v1alpha1

import (
	"cmp"
	"maps"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Defaults of fields that are not set.
const (
	DefaultTimeout          = 3 * time.Second // kube-apiserver's own, of a kms provider
	DefaultRoundTrip        = 5 * time.Minute
	DefaultWriteTimeout     = 10 * time.Second
	DefaultKubeconfig       = "/etc/kms-health/credentials/kubeconfig"
	DefaultEncryptionConfig = "encryption-config"
	// DefaultLocalServer is reachable during a network outage, and where the cluster's DNS names do not resolve.
	DefaultLocalServer   = "https://localhost:6443"
	DefaultClusterServer = "https://kubernetes.default.svc"
)

// setDefaults fills in the fields that are not set. A duration of 0 is set: an
// interval of 0 is an error, not a request for the default.
func setDefaults(c *ReporterConfiguration) {
	setProbeDefaults(&c.Probe)
	setPluginDefaults(c.Plugins, c.Probe)
	if d := c.Destination; d != nil {
		d.Kubeconfig = cmp.Or(d.Kubeconfig, DefaultKubeconfig)
		d.WriteTimeout = cmp.Or(d.WriteTimeout, Duration{Duration: DefaultWriteTimeout})
	}
	if c.Serving != nil && c.Serving.TLS != nil {
		c.Serving.TLS.MinVersion = cmp.Or(c.Serving.TLS.MinVersion, TLS12)
	}
}

func setProbeDefaults(p *Probe) {
	p.Interval = cmp.Or(p.Interval, Duration{Duration: contract.DefaultInterval})
	p.Checks.RoundTrip.Interval = cmp.Or(p.Checks.RoundTrip.Interval, Duration{Duration: DefaultRoundTrip})
}

// DefaultProbe returns how plugins are probed if a file does not set it.
func DefaultProbe() (p Probe) {
	setProbeDefaults(&p)
	return p
}

// setPluginDefaults also changes endpoints to the plain spelling, which reporters of any version can read.
func setPluginDefaults(plugins []Plugin, probe Probe) {
	for i := range plugins {
		p := &plugins[i]
		if address, err := SocketAddress(p.Endpoint); err == nil {
			p.Endpoint = Endpoint(address)
		}
		p.KeyID = cmp.Or(p.KeyID, contract.KeyIDOfSocket(p.Endpoint))
		most := max(probe.Interval.Duration, contract.MinInterval)
		p.Timeout = cmp.Or(p.Timeout, Duration{Duration: min(DefaultTimeout, most)})
	}
}

func setOperatorDefaults(c *OperatorConfiguration) {
	c.ManagementState = cmp.Or(c.ManagementState, Managed)
	setProbeDefaults(&c.Probe)
	for i := range c.APIServers {
		t := &c.APIServers[i]
		row := contract.ResourceOf(string(t.Resource)).APIServer // empty for kmshealths
		t.Name = cmp.Or(t.Name, row.Name)
		t.Namespace = cmp.Or(t.Namespace, row.Namespace)
		if t.PodSelector == nil {
			t.PodSelector = maps.Clone(row.PodSelector)
			t.Container = cmp.Or(t.Container, row.Container)
		}
		if t.Plugins == nil {
			if t.Resource != ResourceKMSHealths { // only OpenShift has a Secret of that name
				t.EncryptionConfig.Secret = cmp.Or(t.EncryptionConfig.Secret, DefaultEncryptionConfig)
			}
			t.EncryptionConfig.Key = cmp.Or(t.EncryptionConfig.Key, DefaultEncryptionConfig)
		}
		t.Mode = cmp.Or(t.Mode, ModeAuto)
		t.ConfigSource = cmp.Or(t.ConfigSource, defaultConfigSource(t))
		server := DefaultLocalServer
		if t.Mode.InOwnersPods() {
			server = DefaultClusterServer
		}
		t.Connection.Server = cmp.Or(t.Connection.Server, server)
		setPluginDefaults(t.Plugins, c.Probe)
	}
}

// defaultConfigSource is Annotation where ConfigMaps are encrypted together with Secrets: a pod that mounts one could
// not start in the outage that it is to report. Pods of other owners always mount it.
func defaultConfigSource(t *APIServer) ConfigSource {
	if contract.ResourceOf(string(t.Resource)).ConfigMapsEncrypted && !t.Mode.InOwnersPods() {
		return ConfigSourceAnnotation
	}
	return ConfigSourceConfigMap
}
