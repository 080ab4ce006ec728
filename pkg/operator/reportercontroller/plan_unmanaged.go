package reportercontroller

import (
	"encoding/base64"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// renew plans what an Unmanaged target still gets: its token before it expires, the API server's CA and the TLS
// settings, so that pausing management ends no report.
func (p *planner) renew() {
	p.Token = p.mounted(objects.TokenName(p.Target.Name))
	p.renewFiles()
	p.Status = delivery.Status{Reason: contract.Unmanaged,
		Message: "managementState is Unmanaged: only the CA, the TLS settings and the token of sidecars are renewed"}
	if p.Deleting {
		p.Status.Message += "; what is left of this API server's objects is removed when that ends"
	}
	if len(p.problems) > 0 {
		p.Status = delivery.Worst(p.problems)
	}
}

// renewFiles plans the CA and the TLS settings in the files of reporters that exist. Nothing else in them changes, and
// no pod is replaced: without the CA no reporter writes, and a security setting must not wait.
func (p *planner) renewFiles() {
	for _, o := range slices.Concat(p.own("ConfigMap"), p.own("Pod")) {
		if o.GetDeletionTimestamp() != nil || ended(o) {
			continue
		}
		next, path := o.DeepCopy(), []string{"metadata", "annotations"} // of a pod only the metadata is written
		config, kubeconfig := contract.ConfigAnnotation, contract.KubeconfigAnnotation
		if o.GetKind() == "ConfigMap" {
			next = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}}}
			next.SetLabels(o.GetLabels())
			path, config, kubeconfig = []string{"data"}, contract.ConfigFile, "kubeconfig"
		}
		files, _, _ := unstructured.NestedStringMap(o.Object, path...)
		file, credentials := p.withTLS(files[config]), p.withCA(files[kubeconfig])
		if file == files[config] && credentials == files[kubeconfig] {
			continue
		}
		for key, content := range map[string]string{config: file, kubeconfig: credentials} {
			if _, has := files[key]; has {
				files[key] = content
			}
		}
		_ = unstructured.SetNestedStringMap(next.Object, files, path...)
		p.apply(next)
	}
}

// caData matches the CA in a kubeconfig that the operator wrote.
var caData = regexp.MustCompile(`(certificate-authority-data): .*`)

// withCA returns a kubeconfig with the current CA, if it contains one.
func (p *planner) withCA(kubeconfig string) string {
	if len(p.CA) == 0 {
		return kubeconfig
	}
	return caData.ReplaceAllString(kubeconfig, "$1: "+base64.StdEncoding.EncodeToString(p.CA))
}

// withTLS returns a reporter's file with the current TLS settings, if it serves with TLS. Fields that this version does
// not know are kept.
func (p *planner) withTLS(file string) string {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(file), &content); err != nil {
		return file
	}
	before, has, _ := unstructured.NestedMap(content, "serving", "tls")
	if !has {
		return file
	}
	after, current := maps.Clone(before), p.ServingTLS()
	delete(after, "cipherSuites")
	if after["minVersion"] = string(current.MinVersion); len(current.CipherSuites) > 0 {
		_ = unstructured.SetNestedStringSlice(after, current.CipherSuites, "cipherSuites")
	}
	_ = unstructured.SetNestedMap(content, after, "serving", "tls")
	raw, err := yaml.Marshal(content)
	if err != nil || reflect.DeepEqual(before, after) {
		return file
	}
	return string(raw)
}
