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
	DefaultTimeout      = 5 * time.Second
	DefaultWriteTimeout = 10 * time.Second
	DefaultKubeconfig   = "/etc/kms-health/credentials/kubeconfig"
)

// setDefaults fills in what set says was left out. A field that is there keeps
// its value, zero too: an interval of 0 is a mistake, not a wish for 30s.
func setDefaults(c *ReporterConfiguration, set presence) {
	if !set.has("probe", "interval") {
		c.Probe.Interval = metav1.Duration{Duration: DefaultInterval}
	}
	if !set.has("probe", "checks") {
		c.Probe.Checks = []Check{CheckStatus}
	}
	for i := range c.Plugins {
		p := &c.Plugins[i]
		if p.KeyID == "" {
			p.KeyID = keyIDOf(p.Endpoint)
		}
		if !set.has("plugins", i, "timeout") {
			p.Timeout = metav1.Duration{Duration: min(DefaultTimeout, max(c.Probe.Interval.Duration, MinInterval))}
		}
	}
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
