package v1alpha1

import (
	"maps"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Defaults of the operator's file.
const (
	DefaultEncryptionConfig = "encryption-config"
	// DefaultLocalServer is reachable during a network outage, and where the cluster's
	// DNS names do not resolve.
	DefaultLocalServer   = "https://localhost:6443"
	DefaultClusterServer = "https://kubernetes.default.svc"
)

func setOperatorDefaults(c *OperatorConfiguration) {
	c.ManagementState = orDefault(c.ManagementState, Managed)
	setProbeDefaults(&c.Probe)
	for i := range c.APIServers {
		t := &c.APIServers[i]
		setRowDefaults(t, contract.ResourceOf(string(t.Resource)).APIServer)
		if t.Plugins == nil {
			if !t.Resource.PerAPIServer() { // a Secret of that name is OpenShift's
				t.EncryptionConfig.Secret = orDefault(t.EncryptionConfig.Secret, DefaultEncryptionConfig)
			}
			t.EncryptionConfig.Key = orDefault(t.EncryptionConfig.Key, DefaultEncryptionConfig)
		}
		t.Mode = orDefault(t.Mode, ModeAuto)
		t.ConfigSource = orDefault(t.ConfigSource, defaultConfigSource(t))
		server := DefaultLocalServer
		if t.Mode.InOwnersPods() {
			server = DefaultClusterServer
		}
		t.Connection.Server = orDefault(t.Connection.Server, server)
		setPluginDefaults(t.Plugins, c.Probe)
	}
}

// setRowDefaults sets what the table of resources knows of an API server of OpenShift. The
// row of kmshealths is empty.
func setRowDefaults(t *APIServer, row contract.APIServer) {
	t.Name = orDefault(t.Name, row.Name)
	t.Namespace = orDefault(t.Namespace, row.Namespace)
	if t.PodSelector == nil {
		t.PodSelector = maps.Clone(row.PodSelector)
		t.Container = orDefault(t.Container, row.Container)
	}
}

// defaultConfigSource is Annotation where ConfigMaps are encrypted together with Secrets: a
// pod that mounts one could not start in the outage that it is to report. Pods of other owners
// always mount it.
func defaultConfigSource(t *APIServer) ConfigSource {
	if contract.ResourceOf(string(t.Resource)).ConfigMapsEncrypted && !t.Mode.InOwnersPods() {
		return ConfigSourceAnnotation
	}
	return ConfigSourceConfigMap
}

// InOwnersPods reports whether the reporter runs inside the API server's own pods,
// whose ServiceAccount is not the reporter's.
func (d Mode) InOwnersPods() bool { return d == ModeSidecar }

// OwnerInjects reports whether the pods' owner adds the reporter's container, and brings
// its credentials.
func (t *APIServer) OwnerInjects() bool { return t.Mode == ModeSidecar && t.Deployment == "" }
