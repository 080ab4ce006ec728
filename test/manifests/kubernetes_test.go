//go:build integration

package manifests

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/nodes"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/reporters"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
)

// quickstart follows docs/quickstart/kubernetes.md, on a cluster without any resource of OpenShift: the shipped
// manifests/kubernetes, the operator, a reporter and a real plugin.
type quickstart struct {
	*testing.T
	dir, config string // config is the path of the operator's file
	shipped     string // the shipped content of that file
	kubeconfig  string // of an administrator
	plugin      *kmsplugin.Plugin
}

func (q *quickstart) build(folder string) string {
	q.Helper()
	binary, err := program.Build(q.TempDir(), folder)
	must.Succeed(q, err)
	return binary
}

func newQuickstart(t *testing.T) *quickstart {
	t.Helper()
	q := &quickstart{T: t, dir: t.TempDir(), kubeconfig: plain.AdminKubeconfig(t)}
	q.config = filepath.Join(q.dir, "config.yaml")
	sockets := program.SocketDir(t)
	q.plugin = kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + filepath.Join(sockets, "kms-1.sock"), StateDir: t.TempDir()})
	workers, err := nodes.Start(t.Context(), plain.config, "master-0")
	must.Succeed(q, err)
	t.Cleanup(workers.Stop)
	running, err := reporters.Start(reporters.Options{
		Cluster: plain.ControlPlane, Binary: q.build("cmd/kms-health-reporter"), Dir: t.TempDir(), Sockets: func(string) string { return sockets },
	})
	must.Succeed(q, err)
	t.Cleanup(running.Stop)
	pod := apiservers.StaticPod("1")
	pod.Namespace, pod.Labels = "kube-system", map[string]string{"component": "kube-apiserver"}
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}}
	_, err = workers.RunStaticPod(soon(t), "master-0", pod)
	must.Succeed(q, err)
	return q
}

func (q *quickstart) configure(text string) {
	q.Helper()
	must.Succeed(q, disk.Replace(q.config, []byte(text)))
}

// start runs the operator with the Deployment's arguments and the shipped file. It changes only settings that do not
// work outside a pod, and the interval.
func (q *quickstart) start() {
	q.Helper()
	namespace := install.Namespace(install.Kubernetes)
	token, err := plain.ServiceAccountToken(soon(q.T), namespace, install.ServiceAccount, controlplane.TokenOptions{})
	must.Succeed(q, err)
	kubeconfig, err := plain.WriteKubeconfig(filepath.Join(q.dir, "credentials"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	must.Succeed(q, err)
	var args []string
	environment := append(os.Environ(), "KUBECONFIG="+kubeconfig)
	for _, o := range plain.base {
		switch {
		case o.GetKind() == "ConfigMap" && o.GetName() == install.ServiceAccount+"-config":
			file, _, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
			q.shipped = strings.Replace(file, "interval: 30s", "interval: 5s", 1)
		case o.GetKind() == "Deployment":
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			c := containers[0].(map[string]any)
			for _, e := range c["env"].([]any) {
				e := e.(map[string]any)
				value, _ := e["value"].(string)
				environment = append(environment, fmt.Sprintf("%s=%s", e["name"], value))
			}
			for _, a := range c["args"].([]any) {
				args = append(args, strings.NewReplacer("/etc/kms-health-operator/config.yaml", q.config, "$(METRICS_CERT_DIR)", "").Replace(a.(string)))
			}
		}
	}
	q.configure(q.shipped)
	environment = append(environment, "POD_NAMESPACE="+namespace, "METRICS_CERT_DIR=")
	log := filepath.Join(q.dir, "log")
	args = append(args, "--metrics-bind-address", "0", "--health-bind-address", "0")
	process, err := controlplane.StartChild("the operator", q.build("cmd/kms-health-operator"), environment, args, log)
	must.Succeed(q, err)
	q.Cleanup(func() {
		if err := process.End(); err != nil {
			q.Errorf("the operator ended with %v", err)
		}
		if text, err := os.ReadFile(log); q.Failed() && err == nil {
			q.Logf("the operator's log:\n%s", text[max(0, len(text)-8000):])
		}
	})
}

// shows waits until kubectl shows one object, with this roll-up, and with reports from all nodes.
func (q *quickstart) shows(degraded, reason string) {
	q.Helper()
	eventually(q.T, degraded+" "+reason, func() error {
		table, err := install.Kubectl(q.Context(), nil, "--kubeconfig", q.kubeconfig, "get", "kmshealths", "--no-headers")
		got := strings.Fields(string(table))
		if err == nil && (len(got) < 5 || !slices.Equal(got[:4], []string{"kube-apiserver", degraded, reason, "True"})) {
			err = fmt.Errorf("%s", table)
		}
		return err
	})
}

// audited returns the requests of a ServiceAccount. There must be at least one.
func (q *quickstart) audited(account string) []auditv1.Event {
	q.Helper()
	must.Succeed(q, plain.AuditFence(soon(q.T)))
	events, err := plain.AuditEvents(controlplane.ServiceAccountUser(install.Namespace(install.Kubernetes), account))
	must.Succeed(q, err)
	if len(events) == 0 {
		q.Errorf("no request of %s is in the audit log", account)
	}
	return events
}

// requests requests a round trip from the KMSHealth's reporters, which are agents.
func (q *quickstart) requests() {
	q.Helper()
	_, err := install.Kubectl(q.Context(), nil, "--kubeconfig", q.kubeconfig, "annotate", "kmshealths", "kube-apiserver",
		contract.ProbeRequestedAnnotation+"=r-1")
	must.Succeed(q, err)
	eventually(q.T, "the agents' file has the request", func() error {
		list, err := plain.kube.CoreV1().ConfigMaps(install.Namespace(install.Kubernetes)).List(q.Context(),
			metav1.ListOptions{LabelSelector: contract.APIServerLabel})
		if err == nil && (len(list.Items) != 1 || !strings.Contains(list.Items[0].Data[contract.ConfigFile], "requested: r-1\n")) {
			err = fmt.Errorf("there are %d files: %v", len(list.Items), list.Items)
		}
		return err
	})
}

func TestPlainKubernetesShowsAnUnhealthyPluginAndIsRemoved(t *testing.T) {
	q := newQuickstart(t)
	q.start()
	q.shows("False", "AsExpected")
	must.Succeed(q, q.plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy}))
	q.shows("True", "PluginUnhealthy")
	out, _ := exec.Command(q.build("cmd/kubectl-kms_health"), "status", "--kubeconfig", q.kubeconfig).CombinedOutput()
	if !regexp.MustCompile(`kube-apiserver.*master-0.*unhealthy`).Match(out) {
		t.Errorf("%s", out)
	}
	must.Succeed(q, q.plugin.ClearFaults())
	q.shows("False", "AsExpected")
	q.requests()

	q.configure(q.shipped + "managementState: Removed\n")
	eventually(t, "all is removed", func() error {
		ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kms-health-reporter"}
		roles, err := plain.kube.RbacV1().ClusterRoles().List(t.Context(), ours)
		if err == nil && len(roles.Items) > 0 {
			err = fmt.Errorf("%d ClusterRoles", len(roles.Items))
		}
		return err
	})
	if _, err := plain.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "kms-health-reporter", metav1.GetOptions{}); err != nil {
		t.Errorf("the reporters' policy is not the operator's: %v", err)
	}
	list, err := plain.client.Resource(contract.KMSHealths.GVR()).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("%d objects are left: %v", len(list.Items), err)
	}
	for _, e := range q.audited(install.ServiceAccount) {
		// Requests of other tests expect a denial.
		refused := e.ResponseStatus != nil && (e.ResponseStatus.Code == http.StatusForbidden || e.ResponseStatus.Code == http.StatusUnauthorized)
		if refused && strings.HasPrefix(e.UserAgent, "kms-health-operator/") {
			t.Errorf("refused: %s %s: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
	}
	for _, e := range q.audited(reporter) {
		if e.Verb != "patch" || !strings.HasPrefix(e.RequestURI, "/apis/kmshealth.openshift.io/v1alpha1/kmshealths/kube-apiserver/status?") {
			t.Errorf("%s %s", e.Verb, e.RequestURI)
		}
	}
}
