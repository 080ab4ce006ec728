package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/bindata"
)

// installation is the objects of a cluster with kms-health, served as by an API server, or
// written as oc adm inspect does.
type installation struct {
	objects   []*unstructured.Unstructured
	forbidden []string       // resources
	failing   map[string]int // resources, with the code of the answer; 0: none comes
	message   string         // of the answers of failing
	metrics   string         // empty: forbidden
	ahead     time.Duration
}

const (
	operatorNamespace = "openshift-kms-health"
	setHash           = "3940a7a9b1c4d2e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d"
	reporterFile      = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\nprobe:\n  interval: 30s\nplugins:\n- endpoint: unix:///var/run/kmsplugin/kms-2.sock\n  keyID: \"2\"\n  role: Write\n"
)

// failures are the reasons of kube-apiserver's answers, by their code.
var failures = map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 500: metav1.StatusReasonInternalError}

// objectsOf are the objects of a text in YAML.
func objectsOf(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); err != nil {
			return all
		}
		if o.Object != nil {
			all = append(all, o)
		}
	}
}

// newInstallation is a healthy one with three nodes; testdata has the operator resource.
func newInstallation(t *testing.T, operatorResource string) *installation {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", operatorResource))
	if err != nil {
		t.Fatal(err)
	}
	c := &installation{objects: objectsOf(t, string(text))}
	c.objects = append(c.objects, objectsOf(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: kms-health-operator, namespace: openshift-kms-health}
spec: {replicas: 2}
status: {availableReplicas: 2}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kms-health-operator, namespace: openshift-kms-health}
spec: {leaseDurationSeconds: 137, renewTime: "2026-05-08T12:34:30.000000Z"}
---
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: kms-health}
status:
  conditions:
  - {type: Available, status: "True", reason: AsExpected}
  - {type: Progressing, status: "False", reason: AsExpected}
  - {type: Degraded, status: "False", reason: AsExpected}
  - {type: Upgradeable, status: "True", reason: AsExpected}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kms-health-operator-config, namespace: openshift-kms-health}
data:
  config.yaml: |
    apiVersion: kmshealth.openshift.io/v1alpha1
    kind: OperatorConfiguration
    apiServers:
    - {name: kube-apiserver, resource: kubeapiservers, namespace: openshift-kube-apiserver, podSelector: {apiserver: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: unrelated, namespace: openshift-kms-health}
---
apiVersion: v1
kind: Pod
metadata: {name: kms-health-operator-1, namespace: openshift-kms-health, labels: {app.kubernetes.io/name: kms-health-operator}}
spec: {nodeName: master-0, containers: [{name: kms-health-operator}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver-master-0, namespace: openshift-kube-apiserver}
spec: {nodeName: master-0, containers: [{name: kube-apiserver}]}
status: {phase: Running}
`)...)
	c.render(t, "configmap.yaml", map[string]any{
		"Name": "kms-health-reporter-kube-apiserver-d5ef5f962e-" + setHash[:10], "Namespace": operatorNamespace, "Target": "kube-apiserver", "Config": reporterFile, "Kubeconfig": "",
	})
	for _, node := range []string{"master-0", "master-1", "master-2"} {
		c.render(t, "companion.yaml", map[string]any{
			"Name": "kms-health-kube-apiserver-" + node, "Namespace": operatorNamespace, "Target": "kube-apiserver", "Beside": "uid", "PodHash": "p",
			"Node": node, "ConfigMap": "", "Config": reporterFile, "Kubeconfig": "", "Owner": nil, "ServiceAccount": "kms-health-reporter-kube-apiserver",
			"HostNetwork": true, "Folders": []any{}, "ServingSecret": "", "Container": bindata.Container{Image: "i", ConfigHash: setHash, OpenShift: true},
		})
	}
	return c
}

func (c *installation) render(t *testing.T, name string, values map[string]any) {
	t.Helper()
	text, err := bindata.Render(name, values)
	if err != nil {
		t.Fatal(err)
	}
	c.objects = append(c.objects, objectsOf(t, string(text))...)
}

// find returns the object of a kind whose name contains a text.
func (c *installation) find(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range c.objects {
		if o.GetKind() == kind && strings.Contains(o.GetName(), name) {
			return o
		}
	}
	t.Fatal("no ", kind, name)
	return nil
}

func set(t *testing.T, o *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// setCondition changes a condition, or adds it.
func setCondition(t *testing.T, o *unstructured.Unstructured, conditionType, status, reason, message string) {
	t.Helper()
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == conditionType })
	set(t, o, append(conditions, map[string]any{"type": conditionType, "status": status, "reason": reason, "message": message}), "status", "conditions")
}

func resourceOf(o *unstructured.Unstructured) string { return strings.ToLower(o.GetKind()) + "s" }

func (c *installation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", taken.Add(c.ahead).UTC().Format(http.TimeFormat))
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if r.URL.Path == "/metrics" && c.metrics != "" {
		_, _ = w.Write([]byte(c.metrics))
		return
	}
	if r.URL.Path == "/metrics" || slices.ContainsFunc(parts, func(p string) bool { return slices.Contains(c.forbidden, p) }) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	for resource, code := range c.failing {
		switch {
		case !slices.Contains(parts, resource):
		case code == 0:
			<-r.Context().Done()
			return
		default:
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: failures[code], Message: c.message})
			return
		}
	}
	group, rest := "", parts[2:]
	if parts[0] == "apis" {
		group, rest = parts[1], parts[3:]
	}
	namespace := ""
	if rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}}
	items := []any{}
	for _, o := range c.objects {
		if resourceOf(o) != rest[0] || o.GroupVersionKind().Group != group || o.GetNamespace() != namespace {
			continue
		}
		if items = append(items, o.Object); len(rest) == 2 && o.GetName() == rest[1] {
			_ = json.NewEncoder(w).Encode(o.Object)
			return
		}
	}
	if len(rest) == 2 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	list["items"] = items
	_ = json.NewEncoder(w).Encode(list)
}

// files are the objects as oc adm inspect lays them out. Of gathered namespaces and
// resources there are lists, also empty ones.
func (c *installation) files(t *testing.T, root string) map[string]string {
	t.Helper()
	encode := func(v any) string {
		text, err := sigsyaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return "---\n" + string(text)
	}
	lists := map[string][]any{}
	for _, namespace := range []string{operatorNamespace, "openshift-kube-apiserver"} {
		for _, list := range []string{"core/pods", "core/configmaps", "core/secrets", "apps/deployments"} {
			lists["namespaces/"+namespace+"/"+list] = []any{}
		}
	}
	files := map[string]string{root + "timestamp": "2026-05-08 12:34:40.5 +0000 UTC m=+0.1\n"}
	for _, o := range c.objects {
		group := o.GroupVersionKind().Group
		if group == "" {
			group = "core"
		}
		if o.GetNamespace() == "" {
			files[root+"cluster-scoped-resources/"+group+"/"+resourceOf(o)+"/"+o.GetName()+".yaml"] = encode(o.Object)
			continue
		}
		place := "namespaces/" + o.GetNamespace() + "/" + group + "/" + resourceOf(o)
		lists[place] = append(lists[place], o.Object)
		if o.GetKind() == "Pod" {
			files[root+"namespaces/"+o.GetNamespace()+"/pods/"+o.GetName()+"/"+o.GetName()+".yaml"] = encode(o.Object)
		}
	}
	if c.metrics != "" {
		files[root+"kms-health/kube-apiserver.metrics"] = c.metrics
	}
	for place, items := range lists {
		files[root+place+".yaml"] = encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	return files
}

// folder and archive write the files.
func (c *installation) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range c.files(t, "quay-io-release-sha256-0123/") {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (c *installation) archive(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range c.files(t, "must-gather.local.1/quay-io-release-sha256-0123/") {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
