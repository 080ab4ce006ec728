//go:build integration

package manifests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// installation is a node with an API server's pod, and the operator as shipped.
type installation struct {
	t       *testing.T
	cluster *cluster
	binary  string
	dir     string
	workers *nodes.Nodes
	config  string // the file's path
	shipped string
}

func newInstallation(t *testing.T, s *cluster, binary string) *installation {
	t.Helper()
	workers, err := nodes.Start(t.Context(), s.config, "master-0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(workers.Stop)
	h := &installation{t: t, cluster: s, binary: binary, dir: t.TempDir(), workers: workers}
	h.config = filepath.Join(h.dir, "config.yaml")
	for _, o := range s.base {
		if o.GetKind() == "ConfigMap" && o.GetName() == install.ServiceAccount+"-config" {
			h.shipped = o.Object["data"].(map[string]any)["config.yaml"].(string)
		}
	}
	h.configure(h.shipped)
	return h
}

func (h *installation) configure(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.config+".new", []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(h.config+".new", h.config); err != nil {
		h.t.Fatal(err)
	}
}

func (h *installation) runStatic(namespace string, labels map[string]string, sockets corev1.VolumeSource) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), timeout)
	defer cancel()
	pod := apiservers.StaticPod("1")
	pod.Namespace, pod.Labels = namespace, labels
	pod.Spec.Volumes[0].VolumeSource = sockets
	if _, err := h.workers.RunStaticPod(ctx, "master-0", pod); err != nil {
		h.t.Fatal(err)
	}
}

// start runs the operator with the Deployment's arguments, but for what must be
// otherwise outside of a pod.
func (h *installation) start() {
	h.t.Helper()
	namespace := install.Namespace(h.cluster.overlay)
	token, err := h.cluster.ServiceAccountToken(h.t.Context(), namespace, install.ServiceAccount, controlplane.TokenOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	kubeconfig, err := h.cluster.WriteKubeconfig(filepath.Join(h.dir, "credentials"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	if err != nil {
		h.t.Fatal(err)
	}
	var args []string
	env := map[string]string{"KUBECONFIG": kubeconfig}
	for _, o := range h.cluster.base {
		if o.GetKind() != "Deployment" {
			continue
		}
		c := containerOf(o)
		for _, e := range c["env"].([]any) {
			e := e.(map[string]any)
			value, _ := e["value"].(string)
			env[e["name"].(string)] = value
		}
		env["POD_NAMESPACE"], env["METRICS_CERT_DIR"] = namespace, ""
		for _, a := range c["args"].([]any) {
			args = append(args, strings.NewReplacer(
				"/etc/kms-health-operator/config.yaml", h.config, "$(METRICS_CERT_DIR)", env["METRICS_CERT_DIR"],
			).Replace(a.(string)))
		}
	}
	environment := os.Environ()
	for name, value := range env {
		environment = append(environment, name+"="+value)
	}
	log := filepath.Join(h.dir, "log")
	args = append(args, "--metrics-bind-address", "0", "--health-bind-address", "0")
	process, err := controlplane.StartChild("the operator", h.binary, environment, args, log)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := process.End(); err != nil {
			h.t.Errorf("the operator ended with %v", err)
		}
		if text, err := os.ReadFile(log); h.t.Failed() && err == nil {
			h.t.Logf("the operator's log:\n%s", text[max(0, len(text)-8000):])
		}
	})
}

// removesAll has the operator remove everything, and looks at the audit log.
func (h *installation) removesAll() {
	t := h.t
	t.Helper()
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kms-health-reporter"}
	h.configure(h.shipped + "managementState: Removed\n")
	eventually(t, "all is removed", func() error {
		roles, err := h.cluster.kube.RbacV1().ClusterRoles().List(t.Context(), ours)
		if err != nil {
			return err
		}
		if len(roles.Items) > 0 {
			return fmt.Errorf("%d ClusterRoles", len(roles.Items))
		}
		return nil
	})
	if _, err := h.cluster.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "kms-health-reporter", metav1.GetOptions{}); err != nil {
		t.Errorf("the reporters' policy is not the operator's: %v", err)
	}
	if err := h.cluster.AuditFence(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, err := h.cluster.AuditEvents(controlplane.ServiceAccountUser(install.Namespace(h.cluster.overlay), install.ServiceAccount))
	if err != nil {
		t.Fatal(err)
	}
	wrote := 0
	for _, e := range events {
		if !strings.HasPrefix(e.UserAgent, "kms-health-operator/") {
			continue // another test's, which expects a denial
		}
		wrote++
		if e.ResponseStatus != nil && (e.ResponseStatus.Code == http.StatusForbidden || e.ResponseStatus.Code == http.StatusUnauthorized) {
			t.Errorf("refused: %s %s: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
	}
	if wrote < 20 {
		t.Errorf("%d requests of the operator's are in the audit log", wrote)
	}
}
