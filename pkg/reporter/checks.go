package reporter

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/serve"
)

// handler serves checks of the reporter's state, and its metrics.
func (r *Reporter) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(name string, failed int, checks func() []serve.Check) {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, request *http.Request) {
			serve.Write(w, request, name, r.ask(request.Context(), checks), failed)
		})
	}
	answer("healthz", http.StatusOK, r.healthChecks)
	answer("readyz", http.StatusServiceUnavailable, r.readyChecks)
	answer("kms-providers", http.StatusInternalServerError, r.pluginChecks)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(r.metrics.Text()) // fails only if the client went away
	})
	return mux
}

// ask calls checks in the goroutine of Run, which owns the state. Any other goroutine may call ask.
func (r *Reporter) ask(ctx context.Context, checks func() []serve.Check) []serve.Check {
	answers := make(chan []serve.Check, 1)
	r.do(ctx, func() { answers <- checks() })
	select {
	case answer := <-answers:
		return answer
	case <-ctx.Done(): // the client has closed its side; it may still read
		return []serve.Check{{Name: "request", Why: "it ended before the answer"}}
	}
}

// healthChecks reports whether this process works. None fails the endpoint: a restart would not fix their causes.
func (r *Reporter) healthChecks() []serve.Check {
	config := r.mismatch
	switch {
	case r.configError != "" && r.config != nil:
		config = "the last good configuration is active: " + r.configError
	case r.configError != "":
		config = noConfiguration + r.configError
	}
	var not []string
	for _, p := range r.plugins {
		if p.notProbed != "" {
			not = append(not, fmt.Sprintf("plugin %s: %s", p.keyID, p.notProbed))
		}
	}
	checks := []serve.Check{{Name: "ping"}, {Name: "config", Why: config}, {Name: "probe", Why: strings.Join(not, "; ")}}
	if r.publisher != nil {
		checks = append(checks, serve.Check{Name: "write", Why: r.publisher.LastError()})
	}
	return checks
}

const noConfiguration = "no configuration yet: "

// readyChecks reports whether a configuration is active and there is a verdict on every plugin.
func (r *Reporter) readyChecks() []serve.Check {
	var config, probed string
	if r.config == nil {
		config = noConfiguration + r.configError
	}
	for _, p := range r.plugins {
		if !p.judged() {
			probed = fmt.Sprintf("plugin %s has not answered or failed yet", p.keyID)
		}
	}
	return []serve.Check{{Name: "config", Why: config}, {Name: "probed", Why: probed}}
}

// pluginChecks is the state of every plugin, named as kube-apiserver names its own.
func (r *Reporter) pluginChecks() []serve.Check {
	checks := make([]serve.Check, len(r.plugins))
	for i, p := range r.plugins {
		checks[i] = serve.Check{Name: "kms-provider-" + p.keyID, Why: p.problem(time.Now())}
	}
	return checks
}

// problem is why a plugin is not known to be healthy. An entry ages while the reporter cannot probe the plugin.
func (p *plugin) problem(now time.Time) string {
	checked := "last checked " + p.entry.LastChecked.UTC().Format(time.RFC3339)
	switch {
	case !p.judged():
		return strings.TrimSuffix("not yet observed: "+p.notProbed, ": ")
	case p.last.Gone:
		return "nothing to observe: the folder of its socket was deleted"
	case p.entry.Skewed(now):
		return checked + ", which is ahead of this node's clock"
	case p.entry.Stale(now):
		return checked + ", too long ago: the state is not known"
	case p.entry.Status != contract.Healthy:
		return fmt.Sprintf("%s: %s", p.entry.Status, p.entry.Detail)
	}
	return ""
}
