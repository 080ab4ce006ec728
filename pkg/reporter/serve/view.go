package serve

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// View is the reporter's state at one moment.
type View struct {
	Configured bool // a configuration is active
	// ConfigError is why the current file is not active, ConfigMismatch why the active
	// configuration is not the one that the pod was created for; empty where it is.
	ConfigError, ConfigMismatch string
	Plugins                     []Plugin // each that is configured
	// WriteError returns why the last write failed; empty when it succeeded, and before the
	// first one ended. Nil: nothing is written.
	WriteError func() string
}

// Plugin is what is known of a plugin.
type Plugin struct {
	contract.Entry
	Probed bool // at least once
	// NotProbed is why the reporter itself could not probe the plugin, as in "too many open
	// files"; empty when it could. The entry is the last result, and becomes stale.
	NotProbed string
	// Gone is true when the folder of its socket was deleted: the entry then
	// has only the plugin's name.
	Gone bool
}

// check is one line of an answer, in the form of kube-apiserver's health
// endpoints.
type check struct {
	name string
	why  string // it failed; empty if it did not
}

// healthChecks reports whether this process works. None of them fails the
// endpoint: a restart of the reporter would not fix their causes.
func (v View) healthChecks() []check {
	config := v.ConfigMismatch
	switch {
	case v.ConfigError != "" && v.Configured:
		config = "the last good configuration is active: " + v.ConfigError
	case v.ConfigError != "":
		config = noConfiguration + v.ConfigError
	}
	checks := []check{{"ping", ""}, {"config", config}, {"probe", v.notProbed()}}
	if v.WriteError != nil {
		checks = append(checks, check{"write", v.WriteError()})
	}
	return checks
}

const noConfiguration = "no configuration yet: "

func (v View) notProbed() string {
	var not []string
	for _, p := range v.Plugins {
		if p.NotProbed != "" {
			not = append(not, fmt.Sprintf("plugin %s: %s", p.KeyID, p.NotProbed))
		}
	}
	return strings.Join(not, "; ")
}

// readyChecks reports whether a configuration is active and every plugin was
// probed.
func (v View) readyChecks() []check {
	var config, probed string
	if !v.Configured {
		config = noConfiguration + v.ConfigError
	}
	for _, p := range v.Plugins {
		if !p.Probed {
			probed = fmt.Sprintf("plugin %s has not answered or failed yet", p.KeyID)
		}
	}
	return []check{{"config", config}, {"probed", probed}}
}

// pluginChecks is the state of every plugin, named as kube-apiserver names its
// own.
func (v View) pluginChecks(now time.Time) []check {
	checks := make([]check, len(v.Plugins))
	for i, p := range v.Plugins {
		checks[i] = check{"kms-provider-" + p.KeyID, p.problem(now)}
	}
	return checks
}

func (p Plugin) problem(now time.Time) string {
	checked := "last checked " + p.LastChecked.UTC().Format(time.RFC3339)
	switch {
	case !p.Probed && p.NotProbed != "":
		return "not yet observed: " + p.NotProbed
	case !p.Probed:
		return "not yet observed"
	case p.Gone:
		return "nothing to observe: the folder of its socket was deleted"
	case p.Skewed(now):
		return checked + ", which is ahead of this node's clock"
	case p.Stale(now):
		return checked + ", too long ago: the state is not known"
	case p.Status != contract.Healthy:
		return fmt.Sprintf("%s: %s", p.Status, p.Detail)
	}
	return ""
}

// write answers in kube-apiserver's form: "ok", or a line per check when asked
// by ?verbose or when one failed. A reason is one line of at most contract.MaxDetail bytes, whatever a
// plugin or a server put into it.
func write(w http.ResponseWriter, r *http.Request, endpoint string, checks []check, failCode int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	var lines strings.Builder
	failed := false
	for _, c := range checks {
		if c.why == "" {
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
			continue
		}
		fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, contract.CleanDetail(c.why))
		failed = true
	}
	switch { // an error is that the client went away
	case failed && failCode != http.StatusOK:
		w.WriteHeader(failCode)
		_, _ = fmt.Fprintf(w, "%s%s check failed\n", lines.String(), endpoint)
	case r.URL.Query().Has("verbose"):
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", lines.String(), endpoint)
	default:
		_, _ = fmt.Fprint(w, "ok")
	}
}
