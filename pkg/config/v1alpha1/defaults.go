package v1alpha1

import (
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of fields that are left out.
const (
	DefaultInterval     = 30 * time.Second
	DefaultTimeout      = 3 * time.Second // kube-apiserver's own, of a kms provider
	DefaultRoundTrip    = 5 * time.Minute
	DefaultWriteTimeout = 10 * time.Second
	DefaultKubeconfig   = "/etc/kms-health/credentials/kubeconfig"
)

// setDefaults fills in the fields that are left out according to set. A field that is set
// keeps its value, also zero: an interval of 0 is a mistake, not a request for the default.
func setDefaults(c *ReporterConfiguration, set presence) {
	setProbeDefaults(&c.Probe, set)
	setPluginDefaults(c.Plugins, c.Probe, func(i int) bool { return set.has("plugins", i, "timeout") })
	if d := c.Destination; d != nil {
		if !set.has("destination", "format") {
			d.Format = FormatCondition
		}
		if !set.has("destination", "kubeconfig") {
			d.Kubeconfig = DefaultKubeconfig
		}
		if !set.has("destination", "writeTimeout") {
			d.WriteTimeout = metav1.Duration{Duration: DefaultWriteTimeout}
		}
	}
	if c.Serving != nil && c.Serving.TLS != nil && !set.has("serving", "tls", "minVersion") {
		c.Serving.TLS.MinVersion = TLS12
	}
}

func setProbeDefaults(p *Probe, set presence) {
	if !set.has("probe", "interval") {
		p.Interval = metav1.Duration{Duration: DefaultInterval}
	}
	if p.Checks == nil {
		p.Checks = DefaultChecks()
	}
	if !set.has("probe", "checks", "roundTrip", "interval") {
		p.Checks.RoundTrip.Interval = metav1.Duration{Duration: DefaultRoundTrip}
	}
}

// DefaultChecks returns the checks of a file that configures none.
func DefaultChecks() *Checks {
	return &Checks{RoundTrip: RoundTrip{Interval: metav1.Duration{Duration: DefaultRoundTrip}}}
}

func setPluginDefaults(plugins []Plugin, probe Probe, hasTimeout func(i int) bool) {
	for i := range plugins {
		p := &plugins[i]
		if p.KeyID == "" {
			p.KeyID = keyIDOf(p.Endpoint)
		}
		if !hasTimeout(i) {
			p.Timeout = metav1.Duration{Duration: min(DefaultTimeout, max(probe.Interval.Duration, MinInterval))}
		}
	}
}

// keyIDOf returns the {keyID} of an endpoint ending in kms-{keyID}.sock, the
// name that OpenShift gives to sockets; empty for any other.
func keyIDOf(endpoint string) string {
	id, prefixed := strings.CutPrefix(strings.TrimPrefix(path.Base(endpoint), "@"), "kms-")
	id, suffixed := strings.CutSuffix(id, ".sock")
	if !prefixed || !suffixed {
		return ""
	}
	return id
}
