package apiserver

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// kubeconfig is one whose cluster has a CA, or the file of one.
func kubeconfig(t *testing.T, ca, caFile string) string {
	t.Helper()
	raw, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://api:6443",
			CertificateAuthorityData: []byte(ca), CertificateAuthority: caFile}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c"}},
		CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func kubeconfigOf(o *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(o.Object, "data", "kubeconfig")
	return text + o.GetAnnotations()[contract.KubeconfigAnnotation]
}

func TestOnlyAnOutdatedCAIsReplaced(t *testing.T) {
	object := func(kind, text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind,
			"metadata": map[string]any{"name": "reporter", "namespace": "ns", "uid": "u", "labels": map[string]any{"a": "b"}}}}
		if kind == "Pod" {
			o.SetAnnotations(map[string]string{contract.KubeconfigAnnotation: text, "other": "x"})
		} else {
			o.Object["data"] = map[string]any{"kubeconfig": text, "config.yaml": "x"}
		}
		return o
	}
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		ca     string
		want   bool
	}{
		"a ConfigMap with an earlier CA":   {object("ConfigMap", kubeconfig(t, "old", "")), "new", true},
		"a pod with an earlier CA":         {object("Pod", kubeconfig(t, "old", "")), "new", true},
		"the CA of the API server":         {object("ConfigMap", kubeconfig(t, "new", "")), "new", false},
		"the file of a CA":                 {object("ConfigMap", kubeconfig(t, "", "/ca.crt")), "new", false},
		"no kubeconfig":                    {object("ConfigMap", ""), "new", false},
		"a kubeconfig that cannot be read": {object("ConfigMap", "{"), "new", false},
		"no CA of the API server is known": {object("ConfigMap", kubeconfig(t, "old", "")), "", false},
		"a kind that has no kubeconfig": {&unstructured.Unstructured{Object: map[string]any{"kind": "DaemonSet"}}, "new",
			false},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.object.DeepCopy()
			patch := withCA(c.object, []byte(c.ca))
			changed := patch != nil
			if changed != c.want {
				t.Fatalf("changed %v: %v", changed, patch)
			}
			if !reflect.DeepEqual(c.object, before) {
				t.Error("the object was changed")
			}
			if !changed {
				return
			}
			text := kubeconfigOf(patch)
			config, err := clientcmd.Load([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if got := config.Clusters["c"]; string(got.CertificateAuthorityData) != c.ca || got.Server != "https://api:6443" ||
				config.CurrentContext != "x" {
				t.Errorf("%s", text)
			}
			if patch.GetUID() != "u" || patch.GetName() != "reporter" {
				t.Errorf("the patch is of another object: %v", patch)
			}
			if data, _, _ := unstructured.NestedMap(patch.Object, "data"); data != nil && data["config.yaml"] != "x" {
				t.Errorf("the patch lacks other files: %v", patch)
			}
		})
	}
}

func TestUnmanagedTargetGetsOnlyWhatExpires(t *testing.T) {
	injects := func(s *Snapshot) { s.CA, s.Deployment = []byte("old"), deployment(1) }
	first := planOf(t, fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")), injects))
	s := fixture(t, v1alpha1.ModeSidecar, inDeployment, pods(apiPod("a", "1")), injects, delivered(t, first),
		func(s *Snapshot) {
			s.CA, s.Unmanaged, s.Config.Image = []byte("new"), true, "reporter:2"
			s.Encryption.Live = set(2, 1)
		})
	plan := planOf(t, s)
	if plan.Status.Reason != contract.Unmanaged || len(plan.Apply)+len(plan.Workloads)+len(plan.Delete) > 0 ||
		plan.DeleteToken || plan.Anchor != nil || plan.Off || plan.Clean {
		t.Errorf("%+v: %s applied, %s deleted, the token %t", plan.Status, names(plan.Apply), names(plan.Delete),
			plan.DeleteToken)
	}
	if !plan.Token || !first.Token {
		t.Errorf("renews the token %t, made it %t", plan.Token, first.Token)
	}
	if len(plan.RenewCA) != 1 || plan.RenewCA[0].GetKind() != "ConfigMap" {
		t.Errorf("the CA is replaced in %q", names(plan.RenewCA))
	}
	s.CA = []byte("old")
	if plan := planOf(t, s); len(plan.RenewCA) > 0 {
		t.Errorf("the same CA is replaced in %q", names(plan.RenewCA))
	}
}
