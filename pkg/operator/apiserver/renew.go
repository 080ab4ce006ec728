package apiserver

import (
	"bytes"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
)

// reportToken reports the state of the token in a Secret, also of one that works but whose
// renewal fails.
func (x *execution) reportToken(secret string, r *credentials.Result) {
	if !r.Next.IsZero() {
		x.requeue(max(time.Second, r.Next.Sub(x.Now())))
	}
	if !r.NotAfter.IsZero() {
		x.outcome.Expiries[secret], x.outcome.Renewals[secret] = r.NotAfter, r.RenewAt
	}
	if r.Problem != nil {
		problem := Problem{Reason(r.Problem.Reason), r.Problem.Message}
		if apierrors.IsForbidden(r.Problem) {
			problem = problemOf(r.Problem)
		}
		x.problems = append(x.problems, problem)
	}
}

// kubeconfigOf finds the kubeconfig of an object that has one: a ConfigMap, or a pod
// that gets it by the downward API.
func kubeconfigOf(o *unstructured.Unstructured) (path []string, text string) {
	path = []string{"data", "kubeconfig"}
	if o.GetKind() == "Pod" {
		path = []string{"metadata", "annotations", contract.KubeconfigAnnotation}
	}
	text, _, _ = unstructured.NestedString(o.Object, path...)
	return path, text
}

// withCA is a patch that replaces only an outdated CA in the kubeconfig of an object, as
// it was read.
func withCA(o *unstructured.Unstructured, ca []byte) (patch *unstructured.Unstructured, changed bool) {
	path, text := kubeconfigOf(o)
	if text == "" || len(ca) == 0 {
		return nil, false
	}
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		return nil, false
	}
	for cluster := range maps.Values(config.Clusters) {
		if len(cluster.CertificateAuthorityData) > 0 && !bytes.Equal(cluster.CertificateAuthorityData, ca) {
			cluster.CertificateAuthorityData, changed = ca, true
		}
	}
	if !changed {
		return nil, false
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return nil, false
	}
	patch = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(),
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace(), "uid": string(o.GetUID()),
			"resourceVersion": o.GetResourceVersion()},
	}}
	if err := unstructured.SetNestedField(patch.Object, string(raw), path...); err != nil {
		return nil, false
	}
	return patch, true
}
