//go:build integration

package manifests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/manifests/install"
)

func id(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// resourceOf returns the resource of an object. It knows the plurals of the kinds in manifests/.
func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	plural := strings.ToLower(o.GetKind())
	switch {
	case strings.HasSuffix(plural, "policy"):
		plural = strings.TrimSuffix(plural, "y") + "ies"
	case !strings.HasSuffix(plural, "s"):
		plural += "s"
	}
	return o.GroupVersionKind().GroupVersion().WithResource(plural)
}

// installs has each overlay, with the components for it.
var installs = map[string][][]string{
	install.OpenShift: {
		nil, {"single-replica"}, {"start-during-plugin-outage"}, {"deployment"},
		{"single-replica", "start-during-plugin-outage", "deployment"},
	},
	install.SingleNode: {nil, {"deployment"}},
	install.Kubernetes: {
		nil, {"monitoring"}, {"single-replica/kubernetes"}, {"start-during-plugin-outage"}, {"deployment/kubernetes"},
		{"single-replica/kubernetes", "start-during-plugin-outage", "deployment/kubernetes"},
	},
}

func TestEveryInstallIsAcceptedByKubectlAsItStands(t *testing.T) {
	for name, s := range map[string]*cluster{"openshift": openshift, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for overlay, all := range installs {
				if (overlay == install.Kubernetes) != (s == plain) {
					continue
				}
				for _, components := range all {
					t.Run(overlay+"+"+strings.Join(components, "+"), func(t *testing.T) { isAccepted(t, s, overlay, components) })
				}
			}
		})
	}
}

func isAccepted(t *testing.T, s *cluster, overlay string, components []string) {
	t.Helper()
	kubeconfig := s.AdminKubeconfig(t)
	rendered, err := install.YAML(t.Context(), overlay, components...)
	must.Succeed(t, err)
	s.with(t, components...)
	// Apply over the installed objects, as in an upgrade: the policies among them are active.
	if _, err := install.Kubectl(t.Context(), rendered,
		"--kubeconfig", kubeconfig, "apply", "--server-side", "--force-conflicts", "--field-manager=install", "-f", "-"); err != nil {
		t.Error(err)
	}
	all, err := install.Render(t.Context(), overlay, components...)
	must.Succeed(t, err)
	for _, o := range all {
		isStoredAsWritten(t, s, o)
	}
	leavesNothing(t, s, all, install.Namespace(overlay))
}

// compared are the kinds in manifests/ for which the cluster-version-operator compares the whole object
// (applyUnstructured).
var compared = []string{"NetworkPolicy", "PodDisruptionBudget", "PrometheusRule", "ServiceMonitor", "ValidatingAdmissionPolicy",
	"ValidatingAdmissionPolicyBinding"}

// isStoredAsWritten requires that the API server adds no field. Otherwise the cluster-version-operator would write the
// object again every few minutes, and kubectl apply would report it as configured when nothing changed.
func isStoredAsWritten(t *testing.T, s *cluster, o *unstructured.Unstructured) {
	t.Helper()
	if !slices.Contains(compared, o.GetKind()) {
		return
	}
	live, err := s.client.Resource(resourceOf(o)).Namespace(o.GetNamespace()).Get(t.Context(), o.GetName(), metav1.GetOptions{})
	must.Succeed(t, err)
	written, err1 := json.Marshal(o.Object["spec"])
	stored, err2 := json.Marshal(live.Object["spec"])
	if err1 != nil || err2 != nil || string(written) != string(stored) {
		t.Errorf("%s is stored as\n%s\nnot as it is written:\n%s", id(o), stored, written)
	}
}

// removal is the page's command after `kubectl delete -k`, which does not delete objects of earlier components.
var removal = regexp.MustCompile(`(?m)^ +kubectl (delete .* -l app\.kubernetes\.io/name=kms-health-operator)$`)

// leavesNothing requires that the page's command deletes the objects that components add outside the operator's
// namespace.
func leavesNothing(t *testing.T, s *cluster, all []*unstructured.Unstructured, home string) {
	t.Helper()
	command := removal.FindSubmatch(disk.Read(t, "../../docs/operate/remove.md"))
	if command == nil {
		t.Fatal("remove.md has no such command")
	}
	args := append(strings.Fields(string(command[1])), "--kubeconfig", s.AdminKubeconfig(t), "--dry-run=server", "-o", "name")
	deleted, err := install.Kubectl(t.Context(), nil, args...)
	must.Succeed(t, err)
	for _, o := range all {
		kept := slices.ContainsFunc(s.base, func(b *unstructured.Unstructured) bool { return id(b) == id(o) })
		if !kept && o.GetNamespace() != home && !strings.Contains(string(deleted), "/"+o.GetName()+"\n") {
			t.Errorf("%s stays", id(o))
		}
	}
}

// The pages use kubectl apply without --server-side, which drops a field that is null, for example. The objects get
// other names, since those of the manifests exist. A CRD cannot be renamed.
func TestEveryInstallIsCreatedByKubectlApply(t *testing.T) {
	for _, s := range []*cluster{openshift, plain} {
		t.Run(s.overlay, func(t *testing.T) {
			var list []any
			for _, o := range s.base {
				if o.GetKind() == "CustomResourceDefinition" {
					continue
				}
				o = o.DeepCopy()
				o.SetName("created-" + o.GetName())
				list = append(list, o.Object)
			}
			raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": list})
			must.Succeed(t, err)
			if _, err := install.Kubectl(t.Context(), raw, "--kubeconfig", s.AdminKubeconfig(t), "apply", "--validate=strict", "--dry-run=server", "-f", "-"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who mirrors or replaces the images in image-references must get all images that run.
func TestImagesAreSetInOnePlace(t *testing.T) {
	const operator, reporter = "registry.example.com/me/kms-health-operator:v1", "registry.example.com/me/kms-health-reporter@sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3"
	m := install.Manifests{Images: map[string]string{
		"registry.invalid/kms-health-operator": operator, "registry.invalid/kms-health-reporter": reporter,
	}}
	for _, overlay := range []string{".", install.Kubernetes, install.SingleNode} {
		rendered, err := m.YAML(t.Context(), overlay)
		must.Succeed(t, err)
		text := string(rendered)
		for _, image := range []string{operator, reporter} {
			must.Equal(t, overlay+": number of "+image, strings.Count(text, image), 1)
		}
		for _, ofRelease := range []string{"registry.invalid", "OPERATOR_IMAGE_VERSION"} { // a release replaces these
			if strings.Contains(text, ofRelease) {
				t.Errorf("manifests/%s has %s", overlay, ofRelease)
			}
		}
	}
	references := disk.Read(t, filepath.Join(root, "openshift/image-references"))
	for image := range m.Images {
		if !strings.Contains(string(references), `{kind: DockerImage, name: "`+image+`:latest"}`) {
			t.Errorf("image-references has no %s", image)
		}
	}
}

// The label of a control-plane node has no value on most clusters, and "true" on k3s and RKE2.
func TestOperatorIsScheduledWhateverTheValueOfTheNodesRole(t *testing.T) {
	for _, overlay := range []string{install.OpenShift, install.Kubernetes, install.SingleNode} {
		objects, err := install.Render(t.Context(), overlay)
		must.Succeed(t, err)
		for _, o := range objects {
			if o.GetKind() != "Deployment" {
				continue
			}
			selector, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec", "nodeSelector")
			affinity, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec", "affinity", "nodeAffinity")
			if raw, err := json.Marshal(affinity); err != nil || len(selector) > 0 || !strings.Contains(string(raw), `"key":"node-role.kubernetes.io/control-plane","operator":"Exists"`) {
				t.Errorf("%s: %v, %s, %v", overlay, selector, raw, err)
			}
		}
	}
}

// The kubelet does not start a new pod if it cannot read the pod's ConfigMaps and Secrets. A token that admission
// mounts also mounts the ConfigMap kube-root-ca.crt.
func TestOperatorOfASingleNodeStartsDuringAPluginOutage(t *testing.T) {
	for overlay, starts := range map[string]bool{install.SingleNode: true, install.OpenShift: false} {
		objects, err := install.Render(t.Context(), overlay)
		must.Succeed(t, err)
		for _, o := range objects {
			if o.GetKind() != "Deployment" {
				continue
			}
			template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
			raw, err := json.Marshal(template)
			must.Succeed(t, err)
			pod := string(raw)
			needs := !strings.Contains(pod, `"automountServiceAccountToken":false`) || strings.Contains(pod, `"configMap":`) || strings.Contains(pod, `"secret":`)
			if needs == starts {
				t.Errorf("%s: it needs a ConfigMap or a Secret: %t: %s", overlay, needs, pod)
			}
			file, _, _ := unstructured.NestedString(template, "metadata", "annotations", contract.ConfigAnnotation)
			replicas, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
			if starts && (file != string(v1alpha1.OperatorOpenShift) || fmt.Sprint(replicas) != "1") {
				t.Errorf("%s: %v replicas, file %q", overlay, replicas, file)
			}
		}
	}
}

func TestPoliciesPassTheTypeChecker(t *testing.T) {
	for _, s := range []*cluster{openshift, plain} {
		suffix := ""
		if s == plain {
			suffix = "/kubernetes"
		}
		t.Run(s.overlay, func(t *testing.T) {
			s.with(t, "deployment"+suffix, "start-during-plugin-outage")
			eventually(t, "all policies are checked", func() error {
				list, err := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kms-health-operator"})
				if err != nil {
					return err
				}
				if want := map[*cluster]int{openshift: 9, plain: 8}[s]; len(list.Items) != want {
					return fmt.Errorf("%d policies, want %d", len(list.Items), want)
				}
				for _, p := range list.Items {
					if p.Status.ObservedGeneration != p.Generation {
						return fmt.Errorf("%s is not checked yet", p.Name)
					}
					if c := p.Status.TypeChecking; c != nil {
						for _, w := range c.ExpressionWarnings {
							t.Errorf("%s: %s: %s", p.Name, w.FieldRef, w.Warning)
						}
					}
				}
				return nil
			})
		})
	}
}
