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
	// ConfigError is why the current file is not in force; empty when it is.
	ConfigError string
	// ConfigMismatch is why the configuration in force is not the one that the
	// pod was created for; empty when it is.
	ConfigMismatch string
	// Plugins holds each configured plugin.
	Plugins []Plugin
	// Writes holds each form that is written to the destination; none without one.
	Writes []Write
}

// Write is the state of the writes of one form.
type Write struct {
	// Form is "Condition" or "HealthReports".
	Form string
	// Server is the URL of the server in use; empty when none is known.
	Server string
	// Preferred is the URL of the first server of the list, when Server is another
	// one. Empty: Server is the preferred one.
	Preferred string
	// PreferredError is why the preferred server is not in use.
	PreferredError string
	// Error is why the last write failed; empty when it succeeded, and before the
	// first one ended.
	Error string
}

// Plugin is what is known of a plugin.
type Plugin struct {
	health.Entry
	// Probed is true after the first probe.
	Probed bool
	// NotProbed is why the reporter itself could not probe the plugin, as in "too
	// many open files"; empty when it could. It is no statement about the plugin: the
	// entry is the last result, and becomes stale.
	NotProbed string
	// Gone is true when the folder of its socket was deleted: the entry then
	// has only the plugin's name.
	Gone bool
}

// check is one line of an answer, in the form of kube-apiserver's health
// endpoints.
type check struct {
	name string
	err  error
}

// healthChecks reports whether this process works. None of them fails the
// endpoint: a restart of the reporter would not fix their causes.
func (v View) healthChecks() []check {
	checks := []check{{"ping", nil}, {"config", nil}, {"probe", v.probeError()}}
	switch {
	case v.ConfigError != "" && v.Configured:
		checks[1].err = fmt.Errorf("the last good configuration is in force: %s", v.ConfigError)
	case v.ConfigError != "":
		checks[1].err = fmt.Errorf("no configuration yet: %s", v.ConfigError)
	case v.ConfigMismatch != "":
		checks[1].err = errors.New(v.ConfigMismatch)
	}
	for _, w := range v.Writes {
		checks = append(checks, check{"write-" + w.Form, w.err()})
	}
	return checks
}

// probeError names the plugins that the reporter itself could not probe.
func (v View) probeError() error {
	var not []string
	for _, p := range v.Plugins {
		if p.NotProbed != "" {
			not = append(not, fmt.Sprintf("plugin %s: %s", p.KeyID, p.NotProbed))
		}
	}
	if len(not) == 0 {
		return nil
	}
	return errors.New(strings.Join(not, "; "))
}

func (w Write) err() error {
	switch {
	case w.Error != "":
		return errors.New(w.Error)
	case w.Preferred != "":
		return fmt.Errorf("writing through %s, the preferred %s failed: %s", w.Server, w.Preferred, w.PreferredError)
	}
	return nil
}

// readyChecks reports whether a configuration is in force and every plugin was
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
	case !p.Probed && p.NotProbed != "":
		return fmt.Errorf("not yet observed: %s", p.NotProbed)
	case !p.Probed:
		return errors.New("not yet observed")
	case p.Gone:
		return errors.New("nothing to observe: the folder of its socket was deleted")
	case p.Freshness(now) == health.Skewed:
		return fmt.Errorf("last checked %s, which is ahead of this node's clock", p.LastChecked.UTC().Format(time.RFC3339))
	case p.Freshness(now) != health.Fresh:
		return fmt.Errorf("last checked %s, too long ago: the state is not known", p.LastChecked.UTC().Format(time.RFC3339))
	case p.Status != health.Healthy:
		return fmt.Errorf("%s: %s", p.Status, p.Detail)
	}
	return nil
}

// write answers in kube-apiserver's form: "ok", or a line per check when asked
// by ?verbose or when one failed. withhold hides reasons from clients without a
// certificate. A reason is one line of at most health.MaxDetail bytes, whatever a
// plugin or a server put into it.
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
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, health.CleanDetail(c.err.Error()))
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
