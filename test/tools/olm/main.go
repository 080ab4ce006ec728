// Command olm reads the rendered manifests for OpenShift on standard input. It writes the bundle with
// which the Operator Lifecycle Manager (OLM) installs the operator, and files with the objects that OLM
// does not install. Each object of the manifests is in exactly one of them.
//
//	kubectl kustomize manifests | olm VERSION TIME ARCHITECTURE,… DIR
//
// The bundle has the format registry+v1. From it OLM installs the ClusterServiceVersion's Deployment,
// ServiceAccount and rights, and objects of some kinds, all in the operator's namespace, whatever
// namespace an object names. So the bundle does not have:
//
//   - kinds that it does not support: ValidatingAdmissionPolicies, SecurityContextConstraints,
//     the ClusterOperator, the Namespace itself;
//   - Roles and RoleBindings of other namespaces;
//   - NetworkPolicies: OLM supports them only since September 2025, and an older OLM rejects the bundle;
//   - the configuration, a ConfigMap that an upgrade by OLM would overwrite.
package main

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/manifests/install"
)

var (
	//go:embed bundle.tmpl
	text string
	//go:embed icon.svg
	icon []byte

	// templates are the templates of the files, by file name.
	templates = template.Must(template.New("").Funcs(template.FuncMap{"json": func(v any) (string, error) {
		raw, err := json.Marshal(v)
		return string(raw), err
	}}).Parse(text))
)

// carriedKinds are the kinds of other objects that all supported versions of OLM install from a bundle.
var carriedKinds = []string{"PodDisruptionBudget", "PrometheusRule", "Role", "RoleBinding", "Service", "ServiceMonitor"}

// bundle is the data of the templates.
type bundle struct {
	Version        string // a semantic version, without v
	Created        string
	Architectures  []string
	Icon           string
	Operator       string // image
	Reporter       string // image
	Namespace      *unstructured.Unstructured
	Deployment     *unstructured.Unstructured
	ClusterRole    *unstructured.Unstructured // of the operator's ServiceAccount
	Role           *unstructured.Unstructured
	Before, Config []string // objects that OLM does not install
	beside         map[string][]byte
}

// Channel returns the version's channel in a catalog.
func (b *bundle) Channel() string {
	if strings.HasPrefix(b.Version, "0.") || strings.Contains(b.Version, "-") {
		return "candidate"
	}
	return "stable"
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: olm VERSION TIME ARCHITECTURE,... DIR <MANIFESTS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(version, created, architectures, dir string) error {
	rendered, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	files, err := makeBundle(rendered, version, created, strings.Split(architectures, ","))
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// makeBundle returns the files, by name.
func makeBundle(rendered []byte, version, created string, architectures []string) (map[string][]byte, error) {
	b := &bundle{
		Version: version, Created: created, Architectures: architectures, Icon: base64.StdEncoding.EncodeToString(icon),
		beside: map[string][]byte{},
	}
	objects, err := install.Decode(rendered)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := b.add(o); err != nil {
			return nil, err
		}
	}
	if b.Namespace == nil || b.Reporter == "" || b.ClusterRole == nil || b.Role == nil {
		return nil, errors.New("the manifests have no Namespace, ClusterRole, Role or Deployment with REPORTER_IMAGE")
	}
	files := b.beside
	for _, t := range templates.Templates() {
		if t.Name() == "" {
			continue // the template of the whole text
		}
		var content bytes.Buffer
		if err := t.Execute(&content, b); err != nil {
			return nil, err
		}
		files[t.Name()] = content.Bytes()
	}
	return files, nil
}

// add puts an object into the bundle or into the other files.
func (b *bundle) add(o *unstructured.Unstructured) error {
	kind, own := o.GetKind(), o.GetNamespace() == install.Namespace(install.OpenShift)
	operators := o.GetName() == install.ServiceAccount && (own || o.GetNamespace() == "")
	raw, err := yaml.Marshal(o.Object)
	object := strings.TrimSpace(string(raw))
	switch {
	case operators && kind == "Deployment":
		b.Deployment = o
		return errors.Join(err, b.setImages())
	case operators && kind == "ClusterRole":
		b.ClusterRole = o
	case operators && kind == "Role":
		b.Role = o
	case operators && slices.Contains([]string{"ServiceAccount", "ClusterRoleBinding", "RoleBinding"}, kind):
		// OLM creates these itself.
	case own && slices.Contains(carriedKinds, kind):
		o.SetNamespace("") // OLM sets the operator's namespace
		raw, err = yaml.Marshal(o.Object)
		b.beside["bundle/manifests/"+o.GetName()+"_"+strings.ToLower(kind)+".yaml"] = raw
	case own && kind == "ConfigMap":
		b.Config = append(b.Config, object)
	default:
		if kind == "Namespace" {
			b.Namespace = o
		}
		b.Before = append(b.Before, object)
	}
	return err
}

// setImages reads the images from the Deployment.
func (b *bundle) setImages() error {
	var d appsv1.Deployment
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(b.Deployment.Object, &d)
	for _, c := range d.Spec.Template.Spec.Containers {
		b.Operator = c.Image
		for _, e := range c.Env {
			if e.Name == "REPORTER_IMAGE" {
				b.Reporter = e.Value
			}
		}
	}
	return err
}
