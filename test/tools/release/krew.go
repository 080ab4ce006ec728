package main

import (
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// downloads is the URL of the folder that has a folder VERSION with the archives.
const downloads = "https://" + module + "/releases/download"

// writeKrew writes the manifest of the kubectl plugin for an index of krew.
func (r *release) writeKrew(plugins []program) error {
	var platforms []any
	for _, p := range plugins {
		archive := p.archive(r.version)
		digest, err := digest(filepath.Join(r.out, archive))
		if err != nil {
			return err
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.arch}},
			"uri":      downloads + "/" + r.version + "/" + archive,
			"sha256":   digest,
			"bin":      p.file(),
		})
	}
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "kms-health"},
		"spec": map[string]any{
			"version":          r.version,
			"homepage":         "https://" + module,
			"shortDescription": "Show the health of a cluster's KMS plugins",
			"description": "Shows the state of the KMS v2 plugins beside the API servers as a table, for each API server,\n" +
				"node and key, from the reports of kms-health-reporter. It reads with your own rights, or from\n" +
				"files of a must-gather, and writes nothing.\n",
			"platforms": platforms,
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "kms-health.yaml"), raw, 0o644)
}
