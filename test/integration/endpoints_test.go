//go:build integration

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// kube-apiserver accepts each spelling, in a file of the legacy kind EncryptionConfig, and encrypts with its plugin. So
// the reporter must probe the same socket.
func TestEndpointsThatKubeAPIServerAcceptsAreProbed(t *testing.T) {
	dir := program.SocketDir(t)
	spellings := []struct {
		format string // an endpoint; %s is the path of a socket
		of     schema.GroupVersionKind
	}{
		{"unix:%s", schema.GroupVersionKind{Version: "v1", Kind: "Secret"}},
		{"UNIX://%s", schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
		{"unix://localhost%s", schema.GroupVersionKind{Version: "v1", Kind: "LimitRange"}},
		{"unix://%s?a=b", schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}},
		{"unix://user:password@host%s#a", schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}},
	}
	resource := func(of schema.GroupVersionKind) schema.GroupVersionResource {
		return of.GroupVersion().WithResource(strings.ToLower(of.Kind) + "s")
	}
	config := "apiVersion: v1\nkind: EncryptionConfig\nresources:\n"
	var plugins []*kmsplugin.Plugin
	for i, s := range spellings {
		socket := fmt.Sprintf("%s/kms-%d.sock", dir, i)
		plugin := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + socket, StateDir: filepath.Join(dir, fmt.Sprint(i))})
		plugins = append(plugins, plugin)
		config += fmt.Sprintf("- {resources: [%s], providers: [{kms: {apiVersion: v2, name: p%d, endpoint: %q}}]}\n",
			resource(s.of).GroupResource(), i, fmt.Sprintf(s.format, socket))
	}

	server := controlplane.StartForTest(t, controlplane.Options{EncryptionConfig: []byte(config)})
	client := dynamic.NewForConfigOrDie(server.RESTConfig())
	for i, s := range spellings {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(s.of)
		u.SetName("a")
		if _, err := client.Resource(resource(s.of)).Namespace("default").Create(soon(t), u, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", s.format, err)
		}
		if plugins[i].Calls(kmsplugin.CallEncrypt).Count == 0 {
			t.Errorf("%s: kube-apiserver did not encrypt with it", s.format)
		}
		plugins[i].ResetCounters()
	}

	read, err := encryptionconfig.Parse([]byte(config))
	if err != nil || len(read.Plugins) != len(spellings) {
		t.Fatalf("%+v, %v, want %d plugins", read, err, len(spellings))
	}
	file, err := yaml.Marshal(v1alpha1.ReporterConfiguration{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ReporterKind},
		Probe:    v1alpha1.DefaultProbe(), Plugins: read.Plugins,
	})
	must.Succeed(t, err)
	path := filepath.Join(dir, "config.yaml")
	disk.Write(t, path, file)
	if out, err := exec.Command(binary, "--once", "--config", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, file)
	}
	for i, s := range spellings {
		if plugins[i].Calls(kmsplugin.CallEncrypt).Count == 0 {
			t.Errorf("%s: the reporter did not probe it", s.format)
		}
	}
}
