package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/test/harness/image"
)

// release is one, while it is made.
type release struct {
	*checkout
	version, registry, out string
	architectures          []string
	goVersion              string
	builder                builder
	licenses               *licenses
	images                 map[string]string   // by digest, by program
	modules                map[string][]linked // that a program links on one of its platforms, by program
}

func (r *release) make(ctx context.Context) (err error) {
	if r.goVersion, err = pin(ctx); err != nil {
		return err
	}
	if r.licenses, err = findLicenses(ctx); err != nil {
		return err
	}
	if r.builder.dir, err = os.MkdirTemp("", "kms-health-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.builder.dir)) }()
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	indexes, err := r.buildImages(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return r.writePrograms(ctx) },
		func() error { return r.writeImages(indexes) },
		func() error { return r.writeManifests(ctx) },
		func() error { return r.writeBundle(ctx) },
		r.writeSums, // the last: it has the sums of all others
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// buildImages leaves the programs in the builder's folder.
func (r *release) buildImages(ctx context.Context) (map[string]*image.Index, error) {
	r.images = map[string]string{}
	indexes := map[string]*image.Index{}
	for _, name := range image.Programs {
		full := "kms-health-" + name
		fmt.Printf("%s: building for %s\n", full, strings.Join(r.architectures, ", "))
		index, err := image.FromCheckout(ctx, r.root, name, r.registry, r.version, r.builder.dir, r.architectures...)
		if err != nil {
			return nil, err
		}
		indexes[full] = index
		if r.images[full], err = index.ByDigest(); err != nil {
			return nil, err
		}
	}
	return indexes, nil
}

func (r *release) writeImages(indexes map[string]*image.Index) error {
	for full, index := range indexes {
		name := full + "_" + r.version + "_image"
		if err := index.WriteArchive(filepath.Join(r.out, name+".tar")); err != nil {
			return err
		}
		_, digest, _ := strings.Cut(r.images[full], "@")
		if err := writeJSON(filepath.Join(r.out, name+".cdx.json"), r.imageBOM(full, digest, r.modules[full])); err != nil {
			return err
		}
	}
	return nil
}

// imagesAlone writes the images of a checkout into a folder.
func (r *release) imagesAlone(ctx context.Context, out string) (err error) {
	if r.builder.dir, err = os.MkdirTemp("", "kms-health-images-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.builder.dir)) }()
	r.checkout = &checkout{root: "."}
	indexes, err := r.buildImages(ctx)
	if err != nil {
		return err
	}
	for full, index := range indexes {
		layout := filepath.Join(out, full)
		if err := errors.Join(os.RemoveAll(layout), os.MkdirAll(out, 0o755)); err != nil {
			return err
		}
		if err := index.WriteLayout(layout); err != nil {
			return err
		}
		if err := image.ArchiveLayout(layout, layout+".tar"); err != nil {
			return err
		}
		fmt.Printf("%s\n  %s (load it), %s (push it)\n", r.images[full], layout+".tar", layout)
	}
	return nil
}

// archive is the name of the program's archive.
func (p program) archive(version string) string {
	if p.os == "windows" {
		return p.base(version) + ".zip"
	}
	return p.base(version) + ".tar.gz"
}

func (p program) base(version string) string {
	return strings.Join([]string{p.name, version, p.os, p.arch}, "_")
}

// writePrograms writes an archive and a bill of materials for each program and platform, and the
// plugin's manifest for krew.
func (r *release) writePrograms(ctx context.Context) error {
	r.modules = map[string][]linked{}
	var plugins []program
	for _, p := range programs(r.architectures) {
		fmt.Printf("%s: packing for %s/%s\n", p.name, p.os, p.arch)
		built, err := r.builder.build(ctx, p)
		if err != nil {
			return err
		}
		if err := r.writeProgram(ctx, built); err != nil {
			return err
		}
		if p.name == kubectlPlugin {
			plugins = append(plugins, p)
		}
	}
	if len(plugins) == 0 {
		return nil
	}
	return r.writeKrew(plugins)
}

func (r *release) writeProgram(ctx context.Context, p program) error {
	modules, bom, err := r.programBOM(p)
	if err != nil {
		return err
	}
	r.modules[p.name] = union(r.modules[p.name], modules)
	if err := writeJSON(filepath.Join(r.out, p.base(r.version)+".cdx.json"), bom); err != nil {
		return err
	}
	content, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	files := []file{
		{name: p.file(), content: content, executable: true},
		{name: "LICENSE", content: license},
		{name: "THIRD_PARTY_LICENSES", content: thirdParty(modules)},
	}
	if p.name != "kms-health-reporter" { // which has no commands to complete
		completions, err := r.builder.completions(ctx, p.name)
		if err != nil {
			return err
		}
		files = append(files, completions...)
	}
	if p.name == kubectlPlugin && p.os != "windows" {
		// kubectl calls it to complete its plugin.
		files = append(files, file{name: "kubectl_complete-kms_health", content: []byte("#!/bin/sh\nexec kubectl kms-health __complete \"$@\"\n"), executable: true})
	}
	return writeArchive(filepath.Join(r.out, p.archive(r.version)), files, r.at)
}

// union is the modules of both, in the order of their paths.
func union(a, b []linked) []linked {
	byPath := func(a, b linked) int { return cmp.Compare(a.path, b.path) }
	all := slices.SortedFunc(slices.Values(slices.Concat(a, b)), byPath)
	return slices.CompactFunc(all, func(a, b linked) bool { return a.path == b.path })
}

// report prints what was made, and whether it is a release.
func (r *release) report(w io.Writer) error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", r.out)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  %6d KB  %s\n", (info.Size()+1023)/1024, e.Name())
	}
	for _, name := range image.Programs {
		fmt.Fprintf(w, "%s\n", r.images["kms-health-"+name])
	}
	fmt.Fprintf(w, "commit %s of %s, %s\n", r.commit, r.at.Format("2006-01-02T15:04:05Z"), r.goVersion)
	if why := r.notRelease(); len(why) > 0 {
		fmt.Fprintf(w, "THIS IS NO RELEASE of %s:\n", r.version)
		for _, reason := range why {
			fmt.Fprintf(w, "  %s\n", reason)
		}
		return nil
	}
	fmt.Fprintf(w, "release %s: see docs/operate/release.md for the next steps\n", r.version)
	return nil
}
