//go:build integration

package integration

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// The manifests of the docs are applied here unchanged, and
// a reporter with that identity and that role, and no other, writes.
func TestFilesOfTheDocsWork(t *testing.T) {
	const folder, name, home = "../../docs/operate/by-hand", "kms-health-reporter-by-hand", "kms-health"
	client, err := discovery.NewDiscoveryClientForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	var file string
	for _, path := range []string{"rbac.yaml", "configmap.yaml", "daemonset.yaml"} {
		for _, u := range documents(t, filepath.Join(folder, path)) {
			mapping, err := mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
			if err != nil {
				t.Fatal(err)
			}
			resource := dynamic.ResourceInterface(administrator(t).Resource(mapping.Resource))
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				resource = administrator(t).Resource(mapping.Resource).Namespace(u.GetNamespace())
			}
			if _, err := resource.Apply(soon(t), u.GetName(), u, metav1.ApplyOptions{FieldManager: "admin"}); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if u.GetKind() == "ConfigMap" {
				file, _, _ = unstructured.NestedString(u.Object, "data", "config.yaml")
			}
		}
	}
	config, err := v1alpha1.DecodeReporter([]byte(file))
	if err != nil {
		t.Fatal(err)
	}

	r := newReporter(t)
	token, err := cluster.ServiceAccountToken(soon(t), home, name, controlplane.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.credentials(controlplane.Kubeconfig{Credential: controlplane.Credential{Token: token}})
	r.plugin("1")
	text := strings.ReplaceAll(file, config.Plugins[0].Endpoint, r.endpoint("1"))
	text = strings.ReplaceAll(text, config.Destination.Kubeconfig, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile))
	r.write([]byte(text + "probe: {interval: 1s}\n"))
	r.start()
	r.freshCondition(string(config.Destination.Resource), "1=healthy")
}

// documents reads a file of several YAML documents.
func documents(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var list []*unstructured.Unstructured
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list = append(list, u)
	}
}
