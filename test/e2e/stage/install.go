package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// Names of the operator's own objects, as shipped.
const (
	Home         = "openshift-kms-health"
	OperatorName = "kms-health-operator"
)

// Version is a build of both programs, as images that all nodes have.
type Version struct {
	Name     string
	Root     string // the checkout it was built from
	Operator string // image
	Reporter string // image
}

// Build makes both images of the checkout at root, from its Dockerfile, and gives them
// to all nodes.
func (s *Stage) Build(ctx context.Context, name, root string) (*Version, error) {
	v := &Version{Name: name, Root: root,
		Operator: "registry.invalid/kms-health-operator:" + name, Reporter: "registry.invalid/kms-health-reporter:" + name}
	revision, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "HEAD").Output()
	if err != nil {
		revision = []byte("unknown")
	}
	for target, image := range map[string]string{"operator": v.Operator, "reporter": v.Reporter} {
		dir := filepath.Join(s.options.Dir, name, target)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		made, err := cluster.FromDockerfile(root, target, image, dir, map[string]string{
			"VERSION": name, "REVISION": strings.TrimSpace(string(revision)), "TARGETOS": "linux", "TARGETARCH": runtime.GOARCH,
		})
		if err != nil {
			return nil, err
		}
		if err := s.AddImage(ctx, made); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Install applies the manifests of a version as an administrator would, with its
// images and this configuration of the operator, and with more components. It does not
// wait.
func (s *Stage) Install(ctx context.Context, v *Version, config string, components ...string) error {
	if err := s.servingCertificate(ctx); err != nil {
		return err
	}
	overlay := "single-node"
	if len(s.Nodes()) > 1 {
		overlay = "openshift"
	}
	objects, err := s.render(ctx, v.Root, overlay, components...)
	if err != nil {
		return err
	}
	for _, o := range objects {
		switch {
		case o.GetKind() == "Deployment" && o.GetName() == OperatorName:
			if err := setImages(o, v); err != nil {
				return err
			}
		case o.GetKind() == "ConfigMap" && o.GetName() == OperatorName+"-config":
			if err := unstructured.SetNestedField(o.Object, config, "data", "config.yaml"); err != nil {
				return err
			}
		}
	}
	return install.Objects(ctx, s.Config, objects...)
}

// render is what `kubectl kustomize` makes of a checkout's manifests, with what lets the
// operator patch Deployments.
func (s *Stage) render(ctx context.Context, root, overlay string, components ...string) (_ []*unstructured.Unstructured, err error) {
	// kustomize takes no absolute paths.
	dir, err := os.MkdirTemp(s.options.Dir, "manifests-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(filepath.Join(dir, "manifests"), os.DirFS(filepath.Join(root, "manifests"))); err != nil {
		return nil, err
	}
	own := "resources: [../manifests/" + overlay + "]\nsortOptions: {order: fifo}\ncomponents:\n"
	for _, c := range append([]string{"deployment"}, components...) {
		own += "- ../manifests/components/" + c + "\n"
	}
	if err := os.Mkdir(filepath.Join(dir, "own"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "own", "kustomization.yaml"), []byte(own), 0o600); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(s.options.Assets, "kubectl"), "kustomize", filepath.Join(dir, "own")).Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize: %w", err)
	}
	return install.Decode(out)
}

func setImages(o *unstructured.Unstructured, v *Version) error {
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	container, _ := containers[0].(map[string]any)
	container["image"] = v.Operator
	env, _ := container["env"].([]any)
	for _, e := range env {
		if variable, _ := e.(map[string]any); variable["name"] == "REPORTER_IMAGE" {
			variable["value"] = v.Reporter
		}
	}
	return unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}

// servingCertificate makes what OpenShift's service CA makes.
func (s *Stage) servingCertificate(ctx context.Context) error {
	pair, err := s.Serving(OperatorName + "." + Home + ".svc")
	if err != nil {
		return err
	}
	manifest := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + Home + "}\n---\n" +
		"apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {name: " + OperatorName + "-serving, namespace: " + Home + "}\nstringData:\n" +
		"  tls.crt: |\n" + indent(pair.Cert) + "  tls.key: |\n" + indent(pair.Key)
	_, err = s.Kubectl(ctx, manifest, "apply", "--server-side", "--field-manager=service-ca", "-f", "-")
	return err
}

func indent(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// Configure replaces the operator's configuration.
func (s *Stage) Configure(ctx context.Context, config string) error {
	_, err := s.Kubectl(ctx, "", "-n", Home, "patch", "configmap", OperatorName+"-config", "--type=merge",
		"-p", fmt.Sprintf(`{"data": {"config.yaml": %q}}`, config))
	return err
}

// AwaitOperator waits until the operator's Deployment has rolled out.
func (s *Stage) AwaitOperator(ctx context.Context) error {
	return s.AwaitDeployment(ctx, Home, OperatorName)
}
