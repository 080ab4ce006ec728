package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/reporter"
)

// readConfig reads the file as the running reporter would, and explains every
// mistake on a line of its own.
func readConfig(path string, stderr io.Writer) *v1alpha1.ReporterConfiguration {
	content := filewatch.Read(path, v1alpha1.MaxFileSize)
	var config *v1alpha1.ReporterConfiguration
	err := content.Err
	if err == nil {
		config, err = v1alpha1.DecodeReporter(content.Data)
	}
	if err != nil {
		for _, line := range v1alpha1.Lines(err) {
			_, _ = fmt.Fprintf(stderr, "%s: %s\n", path, line)
		}
		return nil
	}
	return config
}

func validate(path string, stdout, stderr io.Writer) int {
	config := readConfig(path, stderr)
	if config == nil {
		return exitNotOK
	}
	effective, err := yaml.Marshal(config)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", path, err)
		return exitNotOK
	}
	_, _ = fmt.Fprintf(stdout, "ok\n---\n%s", effective)
	return exitOK
}

// once prints what every plugin answered. What was not observed is no answer: a plugin
// that is known to be unhealthy decides the exit code, and nothing unknown is healthy.
func once(ctx context.Context, path string, stdout, stderr io.Writer) int {
	config := readConfig(path, stderr)
	if config == nil {
		return exitNoAnswer
	}
	entries, why := reporter.Once(ctx, config)
	message, err := health.EncodeMessage(entries)
	if err == nil {
		_, err = stdout.Write(reporter.Line(message))
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "kms-health-reporter: %v\n", err)
		return exitNoAnswer
	}
	unobserved := notObserved(config.Plugins, entries, why)
	for _, what := range unobserved {
		_, _ = fmt.Fprintf(stderr, "%s: %s\n", path, what)
	}
	return onceCode(entries, unobserved)
}

func onceCode(entries []health.Entry, unobserved []string) int {
	switch {
	case slices.ContainsFunc(entries, func(e health.Entry) bool { return e.Status != health.Healthy }):
		return exitNotOK
	case len(unobserved) > 0:
		return exitNoAnswer
	}
	return exitOK
}

// notObserved lists what a configuration asks for and was not observed, and why.
func notObserved(plugins []v1alpha1.Plugin, entries []health.Entry, why map[string]string) []string {
	if len(plugins) == 0 {
		return []string{"no plugin was observed: the list of plugins is empty"}
	}
	var lines []string
	for _, p := range plugins {
		if !slices.ContainsFunc(entries, func(e health.Entry) bool { return e.KeyID == p.KeyID }) {
			lines = append(lines, fmt.Sprintf("plugin %q was not observed: %s: %s", p.KeyID, p.Endpoint, why[p.KeyID]))
		}
	}
	return lines
}
