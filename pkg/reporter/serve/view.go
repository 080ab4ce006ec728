package serve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

// View is the reporter's state at one moment. It does not change once made.
type View struct {
	// Configured is true when a configuration is in force.
	Configured bool
	// ConfigError says why the file that is there now is not in force; empty
	// when it is.
	ConfigError string
	// ConfigMismatch says why the configuration in force is not the one that the
	// pod was made for; empty when it is.
	ConfigMismatch string
	// Plugins holds each configured plugin.
	Plugins []Plugin
}

// Plugin is what is known of a plugin.
type Plugin struct {
	health.Entry
	// Probed is true after the first probe.
	Probed bool
	// Gone is true when the folder of its socket was deleted: the entry then
	// holds the plugin's name and nothing else.
	Gone bool
}

// check is one line of an answer, in the form of kube-apiserver's health
// endpoints.
type check struct {
	name string
	err  error
}

// healthChecks is whether this process does its work. None of them fails the
// endpoint: nothing around the reporter is cured by restarting it.
func (v View) healthChecks() []check {
	checks := []check{{"ping", nil}, {"config", nil}}
	switch {
	case v.ConfigError != "" && v.Configured:
		checks[1].err = fmt.Errorf("the last good configuration is in force: %s", v.ConfigError)
	case v.ConfigError != "":
		checks[1].err = fmt.Errorf("no configuration yet: %s", v.ConfigError)
	case v.ConfigMismatch != "":
		checks[1].err = errors.New(v.ConfigMismatch)
	}
	return checks
}

// readyChecks is whether a configuration is in force and every plugin was
// probed.
func (v View) readyChecks() []check {
	checks := []check{{"config", nil}, {"probed", nil}}
	if !v.Configured {
		checks[0].err = fmt.Errorf("no configuration yet: %s", v.ConfigError)
	}
	for _, p := range v.Plugins {
		if !p.Probed {
			checks[1].err = fmt.Errorf("plugin %s has not answered or failed yet", p.KeyID)
		}
	}
	return checks
}

// pluginChecks is the state of every plugin, named as kube-apiserver names its
// own.
func (v View) pluginChecks(now time.Time) []check {
	checks := make([]check, len(v.Plugins))
	for i, p := range v.Plugins {
		checks[i] = check{"kms-provider-" + p.KeyID, pluginError(p, now)}
	}
	return checks
}

func pluginError(p Plugin, now time.Time) error {
	switch {
	case !p.Probed:
		return fmt.Errorf("not yet observed")
	case p.Gone:
		return fmt.Errorf("nothing to observe: its socket is not there")
	case p.Freshness(now) != health.Fresh:
		return fmt.Errorf("last checked %s, which is too long ago to tell", p.LastChecked.UTC().Format(time.RFC3339))
	case p.Status != health.Healthy:
		return fmt.Errorf("%s: %s", p.Status, p.Detail)
	}
	return nil
}

// write answers in kube-apiserver's form: "ok", or a line per check when asked
// by ?verbose or when one failed. withhold hides reasons from those who did not
// say who they are.
func write(w http.ResponseWriter, r *http.Request, endpoint string, checks []check, failCode int, withhold bool) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	var lines strings.Builder
	failed := false
	for _, c := range checks {
		switch {
		case c.err == nil:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
			continue
		case withhold:
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.name)
		default:
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.name, c.err)
		}
		failed = true
	}
	_, verbose := r.URL.Query()["verbose"]
	if failed && failCode != http.StatusOK {
		w.WriteHeader(failCode)
		_, _ = fmt.Fprintf(w, "%s%s check failed\n", lines.String(), endpoint) // the client went away
		return
	}
	if verbose {
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", lines.String(), endpoint)
		return
	}
	_, _ = fmt.Fprint(w, "ok")
}
