package v1alpha1

import (
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Defaults of fields that are not set.
const (
	DefaultInterval     = 30 * time.Second
	DefaultTimeout      = 3 * time.Second // kube-apiserver's own, of a kms provider
	DefaultRoundTrip    = 5 * time.Minute
	DefaultWriteTimeout = 10 * time.Second
	DefaultKubeconfig   = "/etc/kms-health/credentials/kubeconfig"
)

// setDefaults fills in the fields that are not set. A duration of 0 is set: an
// interval of 0 is an error, not a request for the default.
func setDefaults(c *ReporterConfiguration) {
	setProbeDefaults(&c.Probe)
	setPluginDefaults(c.Plugins, c.Probe)
	if d := c.Destination; d != nil {
		d.Kubeconfig = orDefault(d.Kubeconfig, DefaultKubeconfig)
		d.WriteTimeout.setDefault(DefaultWriteTimeout)
	}
	if c.Serving != nil && c.Serving.TLS != nil {
		c.Serving.TLS.MinVersion = orDefault(c.Serving.TLS.MinVersion, TLS12)
	}
}

// orDefault is for strings: an empty one in a file is a mistake.
func orDefault[T ~string](value, otherwise T) T {
	if value == "" {
		return otherwise
	}
	return value
}

func setProbeDefaults(p *Probe) {
	p.Interval.setDefault(DefaultInterval)
	if p.Checks == nil {
		p.Checks = &Checks{}
	}
	p.Checks.RoundTrip.Interval.setDefault(DefaultRoundTrip)
}

// DefaultChecks returns the checks of a file that configures none.
func DefaultChecks() *Checks {
	return &Checks{RoundTrip: RoundTrip{Interval: Duration{Duration: DefaultRoundTrip}}}
}

func setPluginDefaults(plugins []Plugin, probe Probe) {
	for i := range plugins {
		p := &plugins[i]
		p.KeyID = orDefault(p.KeyID, contract.KeyIDOfSocket(p.Endpoint))
		p.Timeout.setDefault(min(DefaultTimeout, max(probe.Interval.Duration, MinInterval)))
	}
}
