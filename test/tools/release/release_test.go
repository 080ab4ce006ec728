package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func TestProgramsOfArchitectures(t *testing.T) {
	var names []string
	for _, p := range programs([]string{"amd64", "s390x"}) {
		names = append(names, p.archive("v1.2.3"))
	}
	want := []string{
		"kms-health-operator_v1.2.3_linux_amd64.tar.gz", "kms-health-operator_v1.2.3_linux_s390x.tar.gz",
		"kms-health-reporter_v1.2.3_linux_amd64.tar.gz", "kms-health-reporter_v1.2.3_linux_s390x.tar.gz",
		"kubectl-kms_health_v1.2.3_darwin_amd64.tar.gz", "kubectl-kms_health_v1.2.3_linux_amd64.tar.gz",
		"kubectl-kms_health_v1.2.3_windows_amd64.zip",
	}
	if !slices.Equal(names, want) {
		t.Errorf("archives %v", names)
	}
}

func TestLicensesAreRecognized(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                              "Apache-2.0",
		"Redistribution and use in source and\nbinary forms, with or without\n Neither the name of": "BSD-3-Clause",
		"Redistribution and use in source and binary forms":                                         "BSD-2-Clause",
		"Permission is hereby granted, free of charge, to any":                                      "MIT",
		"Permission to use, copy, modify, and distribute this software for any":                     "ISC",
		"Permission is hereby granted, free of charge\nApache License\nVersion 2.0":                 "Apache-2.0 MIT",
		"all rights reserved": "",
	} {
		if got := strings.Join(recognize(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestALinkedModuleHasItsLicense(t *testing.T) {
	cache, goroot := t.TempDir(), t.TempDir()
	dir := filepath.Join(cache, "github.com/!burnt!sushi/toml@v1.0.0+incompatible")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{dir + "/COPYING": "Permission is hereby granted, free of charge", goroot + "/LICENSE": "Redistribution and use in source and binary forms Neither the name"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := &licenses{goroot: goroot, modcache: cache}
	dep := &debug.Module{Path: "github.com/BurntSushi/toml", Version: "v1.0.0+incompatible"}
	modules, err := l.linked(&debug.BuildInfo{GoVersion: "go1.26.0", Deps: []*debug.Module{dep}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBOM(component{Type: "application", Name: "a", PURL: "pkg:golang/a@v1"}, modules, time.Unix(0, 0))
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pkg:golang/std@1.26.0", "pkg:golang/github.com/BurntSushi/toml@v1.0.0%2Bincompatible", `"MIT"`, `"BSD-3-Clause"`, `"timestamp":"1970-01-01T00:00:00Z"`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the bill has no %s: %s", want, raw)
		}
	}
	if text := string(thirdParty(modules)); !strings.Contains(text, "github.com/BurntSushi/toml v1.0.0+incompatible\n\nPermission is") {
		t.Errorf("licences:\n%s", text)
	}
	l.modcache = t.TempDir()
	if _, err := l.linked(&debug.BuildInfo{Deps: []*debug.Module{dep}}); err == nil {
		t.Error("a module without a licence file is no error")
	}
}

func TestKrewManifestAndProvenanceHaveTheDigests(t *testing.T) {
	r := &release{checkout: &checkout{commit: "abc", tags: []string{"v1.2.3"}}, version: "v1.2.3", registry: "r", downloads: "https://example.com/d", out: t.TempDir()}
	plugin := program{name: kubectlPlugin, os: "windows", arch: "amd64"}
	if err := os.WriteFile(filepath.Join(r.out, plugin.archive(r.version)), []byte("zip"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.writeKrew([]program{plugin}); err != nil {
		t.Fatal(err)
	}
	var krew struct {
		Spec struct {
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	readYAML(t, filepath.Join(r.out, "kms-health.yaml"), &krew)
	got := krew.Spec.Platforms
	real, err := digest(filepath.Join(r.out, plugin.archive(r.version)))
	if err != nil || len(got) != 1 || got[0].SHA256 != real || got[0].Bin != "kubectl-kms_health.exe" || got[0].URI != "https://example.com/d/v1.2.3/kubectl-kms_health_v1.2.3_windows_amd64.zip" {
		t.Errorf("platforms %+v, digest %s, %v", got, real, err)
	}
	if err := r.writeProvenance(); err != nil {
		t.Fatal(err)
	}
	if err := r.writeSums(); err != nil {
		t.Fatal(err)
	}
	var statement struct{ Subject []subject }
	readYAML(t, filepath.Join(r.out, provenanceFile), &statement)
	if len(statement.Subject) != 2 || statement.Subject[1].Digest["sha256"] != real {
		t.Errorf("subjects %+v", statement.Subject)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, sumsFile))
	if err != nil || strings.Count(string(sums), "\n") != 3 || !strings.Contains(string(sums), real+"  "+plugin.archive(r.version)) {
		t.Errorf("sums %v:\n%s", err, sums)
	}
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}
