package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	sumsFile       = "SHA256SUMS"
	provenanceFile = "provenance.intoto.json"
)

// digest is a file's SHA-256.
func digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// subjects are the files of the release, in the order of their names.
func (r *release) subjects() ([]subject, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var all []subject
	for _, e := range entries {
		sum, err := digest(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, subject{Name: e.Name(), Digest: map[string]string{"sha256": sum}})
	}
	return all, nil
}

// writeProvenance writes an in-toto statement of SLSA provenance v1, which is not signed. It has
// no times: equal releases have equal statements.
func (r *release) writeProvenance() error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	source := map[string]any{
		"uri": "git+https://" + module, "digest": map[string]string{"gitCommit": r.commit},
	}
	if len(r.notRelease()) == 0 {
		source["uri"] = "git+https://" + module + "@refs/tags/" + r.version
	}
	return writeJSON(filepath.Join(r.out, provenanceFile), map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": "https://" + module + "/docs/operate/release.md",
				"externalParameters": map[string]any{
					"version": r.version, "registry": r.registry, "architectures": r.architectures, "downloads": r.downloads,
				},
				"internalParameters": map[string]any{
					"go": r.goVersion, "command": r.builder.command, "environment": pinned,
					"host": runtime.GOOS + "/" + runtime.GOARCH, "changes": len(r.changes),
				},
				"resolvedDependencies": []any{source},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": "https://" + module + "/Makefile#release"}},
		},
	})
}

// writeSums writes what `sha256sum -c` reads.
func (r *release) writeSums() error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&b, "%s  %s\n", s.Digest["sha256"], s.Name)
	}
	return os.WriteFile(filepath.Join(r.out, sumsFile), []byte(b.String()), 0o644)
}
