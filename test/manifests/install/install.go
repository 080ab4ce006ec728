// Package install applies manifests/ to a control plane, as kubectl would, so that
// tests can run the operator with the rights that it ships with.
//
// The binary kubectl is found by the environment variable KUBEBUILDER_ASSETS, which
// `make test` sets.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
)

// ServiceAccount is the operator's, in the namespace that Namespace returns.
const ServiceAccount = "kms-health-operator"

// Overlays, as folders of manifests/.
const (
	OpenShift  = "openshift"
	Kubernetes = "kubernetes"
	SingleNode = "single-node"
)

// fieldManager is not the operator's.
const fieldManager = "install"

// Namespace is the operator's, of an overlay.
func Namespace(overlay string) string {
	if overlay == Kubernetes {
		return "kms-health"
	}
	return "openshift-kms-health"
}

// Apply applies an overlay of manifests/ with components of manifests/components,
// all as an administrator, and waits until the operator's rights are active.
// Policies come into force a moment later, which nothing in the API shows. The
// namespaces of the targets must be there. Objects of Prometheus's
// operator are passed over where their kind is not served.
func Apply(ctx context.Context, config *rest.Config, overlay string, components ...string) error {
	return Manifests{}.Apply(ctx, config, overlay, components...)
}

// Apply is Apply of these manifests.
func (m Manifests) Apply(ctx context.Context, config *rest.Config, overlay string, components ...string) error {
	objects, err := m.Render(ctx, overlay, components...)
	if err != nil {
		return err
	}
	client := kubernetes.NewForConfigOrDie(config)
	if err := Objects(ctx, config, objects...); err != nil {
		return err
	}
	namespace := Namespace(overlay)
	return controlplane.AwaitAllowed(ctx, client, controlplane.ServiceAccountUser(namespace, ServiceAccount),
		&authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"})
}

// consoles is a namespace that OpenShift has, and no manifest of ours makes.
const consoles = "openshift-config-managed"

// withConsole returns the namespace as well where objects are in it.
func withConsole(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == consoles }) {
		return objects
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": consoles}}}
	return append([]*unstructured.Unstructured{namespace}, objects...)
}

// Objects applies objects in their order, with the namespace of OpenShift's console where
// they need it.
func Objects(ctx context.Context, config *rest.Config, objects ...*unstructured.Unstructured) error {
	client := dynamic.NewForConfigOrDie(config)
	find, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(find))
	for _, o := range withConsole(objects) {
		gvk := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) && gvk.Group == "monitoring.coreos.com" {
			continue
		}
		if err != nil {
			return fmt.Errorf("find %s: %w", gvk, err)
		}
		err = apiservers.Apply(ctx, client, fieldManager, mapping.Resource, o.GetNamespace(), o.Object)
		if err != nil {
			return fmt.Errorf("apply %s %s/%s: %w", gvk.Kind, o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

// Manifests is a manifests/ folder, with what whoever installs them sets.
type Manifests struct {
	Root string // of the checkout; empty: this one
	// Images are what is to run, by the names in the files; empty: those of the files. Each has a
	// tag or a digest.
	Images map[string]string
}

// Render is what `kubectl kustomize` makes of an overlay with components.
func Render(ctx context.Context, overlay string, components ...string) ([]*unstructured.Unstructured, error) {
	return Manifests{}.Render(ctx, overlay, components...)
}

// YAML is Render, as text.
func YAML(ctx context.Context, overlay string, components ...string) (rendered []byte, err error) {
	return Manifests{}.YAML(ctx, overlay, components...)
}

// Render is what `kubectl kustomize` makes of an overlay with components.
func (m Manifests) Render(ctx context.Context, overlay string, components ...string) ([]*unstructured.Unstructured,
	error) {
	rendered, err := m.YAML(ctx, overlay, components...)
	if err != nil {
		return nil, err
	}
	return Decode(rendered)
}

// rendered has what was rendered of this checkout: kubectl takes longer for it than most
// tests do for the rest.
var rendered sync.Map

// YAML is Render, as text.
func (m Manifests) YAML(ctx context.Context, overlay string, components ...string) ([]byte, error) {
	if m.Root != "" { // its files may change
		return m.kustomize(ctx, overlay, components)
	}
	key := fmt.Sprintf("%q %q %q", m.Images, overlay, components)
	if text, is := rendered.Load(key); is {
		return slices.Clone(text.([]byte)), nil
	}
	text, err := m.kustomize(ctx, overlay, components)
	if err == nil {
		rendered.Store(key, slices.Clone(text))
	}
	return text, err
}

func (m Manifests) kustomize(ctx context.Context, overlay string, components []string) (text []byte, err error) {
	// kustomize takes no absolute paths.
	dir, err := os.MkdirTemp("", "kms-health-install-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := m.Copy(dir); err != nil {
		return nil, err
	}
	kustomization := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources":   []string{"manifests/" + overlay},
		"sortOptions": map[string]any{"order": "fifo"},
	}
	if len(components) > 0 {
		paths := slices.Clone(components)
		for i := range paths {
			paths[i] = "manifests/components/" + paths[i]
		}
		kustomization["components"] = paths
	}
	raw, err := json.Marshal(kustomization) // JSON is YAML
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), raw, 0o600); err != nil {
		return nil, err
	}
	return Kubectl(ctx, nil, "kustomize", dir)
}

// Copy copies the manifests, with what is set, into the folder manifests of a folder.
func (m Manifests) Copy(dir string) error {
	root := m.Root
	if root == "" {
		var err error
		if root, err = program.Root(); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "manifests"), os.DirFS(filepath.Join(root, "manifests"))); err != nil {
		return fmt.Errorf("copy the manifests: %w", err)
	}
	return m.setImages(filepath.Join(dir, "manifests"))
}

// setImages sets the images in the one place that the manifests have for them.
func (m Manifests) setImages(manifests string) error {
	if len(m.Images) == 0 {
		return nil
	}
	images := []map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.Images)) {
		to := m.Images[name]
		image, digest, isDigest := strings.Cut(to, "@")
		if isDigest {
			images = append(images, map[string]string{"name": name, "newName": image, "digest": digest})
			continue
		}
		tag := strings.LastIndex(to, ":")
		images = append(images, map[string]string{"name": name, "newName": to[:tag], "newTag": to[tag+1:]})
	}
	file := filepath.Join(manifests, "components/images/kustomization.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, _, found := strings.Cut(string(raw), "\nimages:\n")
	if !found {
		return fmt.Errorf("%s has no images", file)
	}
	list, err := sigsyaml.Marshal(map[string]any{"images": images})
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte(before+"\n"), list...), 0o600)
}

// Kubectl runs kubectl.
func Kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	folder := os.Getenv("KUBEBUILDER_ASSETS")
	if folder == "" {
		return nil, errors.New(`KUBEBUILDER_ASSETS is not set, so there is no kubectl: run "make test"`)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "kubectl"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// Decode takes rendered manifests apart, in their order.
func Decode(documents []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096)
	for {
		var content map[string]any
		switch err := decoder.Decode(&content); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decode the manifests: %w", err)
		case len(content) > 0:
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
}
