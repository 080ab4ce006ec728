package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/kms-health/kms-health/test/manifests/install"
	"github.com/kms-health/kms-health/test/tools/release/olm"
)

// placeholders are the images' names in manifests/.
const placeholders = "registry.invalid/"

// writeManifests writes what can be applied as it is, and manifests/ with the images set, for what
// somebody must add something to: the CA of a single node, components, a configuration.
func (r *release) writeManifests(ctx context.Context) (err error) {
	images := map[string]string{}
	for name, image := range r.images {
		images[placeholders+name] = image
	}
	m := install.Manifests{Root: r.root, Images: images}
	for name, overlay := range map[string]string{"openshift.yaml": ".", "kubernetes.yaml": install.Kubernetes} {
		rendered, err := m.YAML(ctx, overlay)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.out, name), rendered, 0o644); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "kms-health-manifests-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := m.Copy(dir); err != nil {
		return err
	}
	names, err := r.git(ctx, "ls-files", "manifests") // not what a developer has beside them
	if err != nil {
		return err
	}
	var files []file
	for _, name := range names {
		if filepath.Ext(name) == ".go" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		files = append(files, file{name: name, content: content})
	}
	return writeArchive(filepath.Join(r.out, "kms-health_"+r.version+"_manifests.tar.gz"), files, r.at)
}

// writeBundle writes the bundle for OLM, and what must be applied before it is installed.
func (r *release) writeBundle(ctx context.Context) error {
	bundle, err := r.bundle(ctx)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{olm.PrerequisitesFile: bundle.Prerequisites, olm.ConfigFile: bundle.Config} {
		if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
			return err
		}
	}
	var files []file
	for name, content := range bundle.Files {
		files = append(files, file{name: name, content: content})
	}
	return writeArchive(filepath.Join(r.out, "kms-health-operator_"+r.version+"_olm-bundle.tar.gz"), files, r.at)
}

func (r *release) bundle(ctx context.Context) (*olm.Bundle, error) {
	objects, err := install.Manifests{Root: r.root}.Render(ctx, install.OpenShift)
	if err != nil {
		return nil, err
	}
	return olm.Make(objects, olm.Options{
		Version: strings.TrimPrefix(r.version, "v"), Created: r.at, Architectures: r.architectures,
		Operator: r.images["kms-health-operator"], Reporter: r.images["kms-health-reporter"],
	})
}

// bundleAlone writes the bundle into a folder, with images that do not exist.
func (r *release) bundleAlone(ctx context.Context, dir string) error {
	var err error
	if r.checkout, err = readCheckout(ctx, "."); err != nil {
		return err
	}
	r.images = map[string]string{}
	for _, name := range []string{"kms-health-operator", "kms-health-reporter"} {
		r.images[name] = r.registry + "/" + name + "@sha256:" + strings.Repeat("0", 64)
	}
	bundle, err := r.bundle(ctx)
	if err != nil {
		return err
	}
	for name, content := range bundle.Files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
