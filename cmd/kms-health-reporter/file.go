package main

import (
	"context"
	"fmt"
	"io"
	"os"

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
		return exitIll
	}
	effective, err := yaml.Marshal(config)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", path, err)
		return exitIll
	}
	_, _ = fmt.Fprintf(stdout, "ok\n---\n%s", effective)
	return exitOK
}

func once(ctx context.Context, path string, stdout, stderr io.Writer) int {
	config := readConfig(path, stderr)
	if config == nil {
		return exitUsage
	}
	entries := reporter.Once(ctx, config)
	message, err := health.EncodeMessage(entries)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return exitUsage
	}
	if _, err := fmt.Fprintln(stdout, message); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return exitUsage
	}
	for _, e := range entries {
		if e.Status != health.Healthy {
			return exitIll
		}
	}
	return exitOK
}
