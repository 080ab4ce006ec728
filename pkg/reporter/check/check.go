// Package check implements --validate and --once: it checks the file, or probes every
// plugin of the file once.
package check

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/reporter"
)

// readConfig reads the file as the running reporter would, or standard input, or the
// ConfigMap that has the file, and explains every mistake on a line of its own.
func readConfig(path string, stdin io.Reader, stderr io.Writer) *v1alpha1.ReporterConfiguration {
	content := filewatch.ReadOnce(path, stdin, v1alpha1.MaxFileSize)
	var config *v1alpha1.ReporterConfiguration
	data, err := content.Data, content.Err
	if err == nil {
		data, err = v1alpha1.Unwrap(data)
	}
	if err == nil {
		config, err = v1alpha1.DecodeReporter(data)
	}
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			_, _ = fmt.Fprintf(stderr, "error: %s: %s\n", filewatch.Shown(path), line)
		}
		return nil
	}
	for _, warning := range v1alpha1.Warnings(config) {
		_, _ = fmt.Fprintf(stderr, "warning: %s: %s\n", filewatch.Shown(path), warning)
	}
	return config
}

// File checks the file at path, and prints it with its defaults, or every mistake on a
// line of its own. It reports whether the file is valid.
func File(path string, stdin io.Reader, stdout, stderr io.Writer) bool {
	config := readConfig(path, stdin, stderr)
	if config == nil {
		return false
	}
	effective, err := yaml.Marshal(config)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "error: %s: %v\n", filewatch.Shown(path), err)
		return false
	}
	_, _ = fmt.Fprintf(stdout, "ok\n---\n%s", effective)
	return true
}

// Outcome is what one probe of every plugin showed.
type Outcome int

const (
	// Healthy: every plugin of the file, at least one, is healthy.
	Healthy Outcome = iota
	// NotHealthy: a plugin is known not to be healthy.
	NotHealthy
	// NotObserved: the file cannot be used, or a plugin was not observed and none is
	// known not to be healthy.
	NotObserved
)

// Plugins probes every plugin of the file at path once, and prints their entries as JSON.
// Plugins without an entry are listed on stderr, with the reason.
func Plugins(ctx context.Context, path string, stdin io.Reader, stdout, stderr io.Writer) Outcome {
	config := readConfig(path, stdin, stderr)
	if config == nil {
		return NotObserved
	}
	entries, why := reporter.Once(ctx, config)
	message, err := contract.EncodeMessage(entries)
	if err == nil {
		_, err = stdout.Write(reporter.Line(message))
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "error: %v\n", err)
		return NotObserved
	}
	unobserved := notObserved(config.Plugins, entries, why)
	for _, what := range unobserved {
		_, _ = fmt.Fprintf(stderr, "error: %s: %s\n", filewatch.Shown(path), what)
	}
	return outcome(entries, unobserved)
}

func outcome(entries []contract.Entry, unobserved []string) Outcome {
	switch {
	case slices.ContainsFunc(entries, func(e contract.Entry) bool { return e.Status != contract.Healthy }):
		return NotHealthy
	case len(unobserved) > 0:
		return NotObserved
	}
	return Healthy
}

// notObserved lists the configured plugins that were not observed, and why.
func notObserved(plugins []v1alpha1.Plugin, entries []contract.Entry, why map[string]string) []string {
	if len(plugins) == 0 {
		return []string{"no plugin was observed: the list of plugins is empty"}
	}
	var lines []string
	for _, p := range plugins {
		if !slices.ContainsFunc(entries, func(e contract.Entry) bool { return e.KeyID == p.KeyID }) {
			lines = append(lines, fmt.Sprintf("plugin %q was not observed: %s: %s", p.KeyID, p.Endpoint, why[p.KeyID]))
		}
	}
	return lines
}
