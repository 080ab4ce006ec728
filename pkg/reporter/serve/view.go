package serve

import (
	"errors"
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
	err  error
}

// healthChecks reports whether this process works. None of them fails the
// endpoint: a restart of the reporter would not fix their causes.
func (v View) healthChecks() []check {
	checks := []check{{"ping", nil}, {"config", nil}, {"probe", v.probeError()}}
	switch {
	case v.ConfigError != "" && v.Configured:
		checks[1].err = fmt.Errorf("the last good configuration is active: %s", v.ConfigError)
	case v.ConfigError != "":
		checks[1].err = fmt.Errorf("no configuration yet: %s", v.ConfigError)
	case v.ConfigMismatch != "":
		checks[1].err = errors.New(v.ConfigMismatch)
	}
	if v.WriteError != nil {
		checks = append(checks, check{"write", errorOf(v.WriteError())})
	}
	return checks
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// probeError names the plugins that the reporter itself could not probe.
func (v View) probeError() error {
	var not []string
	for _, p := range v.Plugins {
		if p.NotProbed != "" {
			not = append(not, fmt.Sprintf("plugin %s: %s", p.KeyID, p.NotProbed))
		}
	}
	return errorOf(strings.Join(not, "; "))
}

// readyChecks reports whether a configuration is active and every plugin was
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
	case p.Freshness(now) == contract.Skewed:
		return fmt.Errorf("last checked %s, which is ahead of this node's clock", p.LastChecked.UTC().Format(time.RFC3339))
	case p.Freshness(now) != contract.Fresh:
		return fmt.Errorf("last checked %s, too long ago: the state is not known", p.LastChecked.UTC().Format(time.RFC3339))
	case p.Status != contract.Healthy:
		return fmt.Errorf("%s: %s", p.Status, p.Detail)
	}
	return nil
}

// write answers in kube-apiserver's form: "ok", or a line per check when asked
// by ?verbose or when one failed. withhold hides reasons from clients without a
// certificate. A reason is one line of at most contract.MaxDetail bytes, whatever a
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
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, contract.CleanDetail(c.err.Error()))
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
