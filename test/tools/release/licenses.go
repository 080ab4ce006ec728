package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"
)

// linked is a module that a program links, Go's standard library among them.
type linked struct {
	path, version string
	licenses      []string // as SPDX names them; those that are recognized
	texts         []string // its licence and notice files
}

// licenses finds the modules' files on this host.
type licenses struct{ goroot, modcache string }

func findLicenses(ctx context.Context) (*licenses, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	goroot, modcache, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return &licenses{goroot: goroot, modcache: modcache}, nil
}

// linked returns the modules that a program links, in the order of their paths.
func (l *licenses) linked(info *debug.BuildInfo) ([]linked, error) {
	standard := linked{path: "std", version: info.GoVersion}
	if err := standard.read(l.goroot); err != nil {
		return nil, err
	}
	all := []linked{standard}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		m := linked{path: dep.Path, version: dep.Version}
		if err := m.read(filepath.Join(l.modcache, escape(dep.Path)+"@"+escape(dep.Version))); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b linked) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// escape is how the module cache writes capital letters.
func escape(path string) string {
	var b strings.Builder
	for _, r := range path {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

var licenseFiles = []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"}

func (m *linked) read(dir string) error {
	for _, pattern := range licenseFiles {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			raw, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text := string(bytes.TrimSpace(raw))
			m.texts = append(m.texts, text)
			m.licenses = append(m.licenses, recognize(text)...)
		}
	}
	if len(m.texts) == 0 {
		return fmt.Errorf("module %s %s has no licence file in %s, so its program cannot be distributed", m.path, m.version, dir)
	}
	slices.Sort(m.licenses)
	m.licenses = slices.Compact(m.licenses)
	return nil
}

// recognize returns the licences of a text.
func recognize(text string) []string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(words string) bool { return strings.Contains(text, words) }
	var ids []string
	if has("Apache License Version 2.0") {
		ids = append(ids, "Apache-2.0")
	}
	if has("Redistribution and use in source and binary forms") {
		if has("Neither the name") {
			ids = append(ids, "BSD-3-Clause")
		} else {
			ids = append(ids, "BSD-2-Clause")
		}
	}
	if has("Permission is hereby granted, free of charge") {
		ids = append(ids, "MIT")
	}
	if has("Permission to use, copy, modify, and/or distribute this software") || has("Permission to use, copy, modify, and distribute this software") {
		ids = append(ids, "ISC")
	}
	if has("Mozilla Public License Version 2.0") || has("Mozilla Public License, version 2.0") {
		ids = append(ids, "MPL-2.0")
	}
	return ids
}

// thirdParty is the file of a program's archive with the licences of what it links: each text
// once, after the modules that it belongs to.
func thirdParty(modules []linked) []byte {
	var order []string
	of := map[string][]string{}
	for _, m := range modules {
		for _, text := range m.texts {
			if of[text] == nil {
				order = append(order, text)
			}
			of[text] = append(of[text], m.path+" "+m.version)
		}
	}
	var b bytes.Buffer
	b.WriteString("This program contains these modules, under the licences that follow their names.\n")
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(of[text], "\n"), text)
	}
	return b.Bytes()
}
