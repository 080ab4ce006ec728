// Package install applies manifests/ to a control plane, as kubectl does, so that
// tests run the operator with its shipped rights.
//
// The environment variable KUBEBUILDER_ASSETS names the folder of kubectl. `make test`
// sets it.
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

// ServiceAccount is the operator's ServiceAccount, in the namespace that Namespace returns.
const ServiceAccount = "kms-health-operator"

// The overlays: folders of manifests/.
const (
	OpenShift  = "openshift"
	Kubernetes = "kubernetes"
	SingleNode = "single-node"
)

// fieldManager differs from the operator's field managers.
const fieldManager = "install"

// Namespace returns the operator's namespace in an overlay.
func Namespace(overlay string) string {
	if overlay == Kubernetes {
		return "kms-health"
	}
	return "openshift-kms-health"
}

// Apply applies an overlay of manifests/ with components of manifests/components, as an administrator, and waits until
// the operator's rights are active. Policies become active a moment later; the API does not show when. The API servers'
// namespaces must exist. Apply skips objects of the Prometheus operator if their kind is not served.
func Apply(ctx context.Context, config *rest.Config, overlay string, components ...string) error {
	return Manifests{}.Apply(ctx, config, overlay, components...)
}

// Apply is the function Apply for these manifests.
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

// consoles is a namespace of OpenShift. No manifest of this project creates it.
const consoles = "openshift-config-managed"

// withConsole adds the namespace consoles if it has one of the objects.
func withConsole(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == consoles }) {
		return objects
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": consoles}}}
	return append([]*unstructured.Unstructured{namespace}, objects...)
}

// Objects applies objects in their order. It also creates the namespace consoles if they need it.
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

// Manifests is a manifests/ folder with an administrator's settings.
type Manifests struct {
	Root string // of the checkout; empty: this one
	// Images replaces images, by their names in the files. Each image has a tag or a digest. Empty: no replacement.
	Images map[string]string
}

// Render renders an overlay with components by `kubectl kustomize`.
func Render(ctx context.Context, overlay string, components ...string) ([]*unstructured.Unstructured, error) {
	return Manifests{}.Render(ctx, overlay, components...)
}

// YAML is Render with the result as text.
func YAML(ctx context.Context, overlay string, components ...string) (rendered []byte, err error) {
	return Manifests{}.YAML(ctx, overlay, components...)
}

// Render renders an overlay with components by `kubectl kustomize`.
func (m Manifests) Render(ctx context.Context, overlay string, components ...string) ([]*unstructured.Unstructured,
	error) {
	rendered, err := m.YAML(ctx, overlay, components...)
	if err != nil {
		return nil, err
	}
	return Decode(rendered)
}

// rendered caches the results for this checkout, since kubectl takes longer than most tests.
var rendered sync.Map

// YAML is Render with the result as text.
func (m Manifests) YAML(ctx context.Context, overlay string, components ...string) ([]byte, error) {
	if m.Root != "" { // not cached: the files may change
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
	// kustomize accepts no absolute paths.
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

// Copy copies the manifests, with the settings, into the folder manifests in dir.
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

// setImages sets the images in components/images, the only place for them.
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

// Decode decodes rendered manifests, in their order.
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
