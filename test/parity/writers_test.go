//go:build integration

package parity

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/reporter"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const local = "aescbc: {keys: [{name: '1', secret: c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/ISEhISE=}]}"

// writers are encryption configs: the resources and the providers of each entry. The providers a and b are plugins.
var writers = []struct {
	name    string
	entries [][2]string
	key     string // the plugin that encrypts all Secrets and ConfigMaps; empty: several providers write
}{
	{"one entry", [][2]string{{"secrets, configmaps", "a b"}}, "a"},
	{"two plugins", [][2]string{{"secrets", "a b"}, {"configmaps", "b a"}}, ""},
	{"a resource twice, with a plugin in the second entry",
		[][2]string{{"secrets", "local"}, {"secrets, configmaps", "a"}}, ""},
	{"a resource twice, with another plugin in the second entry",
		[][2]string{{"secrets, configmaps", "a"}, {"secrets.", "b"}}, "a"},
}

// The test compares the write key that the operator finds in an encryption config with the data that kube-apiserver
// stores.
func TestWriteKeyIsTheOneThatKubeAPIServerWritesWith(t *testing.T) {
	skipUnlessCompared(t)
	dir, provider := program.SocketDir(t), map[string]string{"local": local}
	for _, name := range []string{"a", "b"} {
		endpoint := "unix://" + filepath.Join(dir, "kms-"+name+".sock")
		kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: endpoint, StateDir: filepath.Join(dir, name)})
		provider[name] = fmt.Sprintf("kms: {apiVersion: v2, name: %s-NUMBER, endpoint: %q}", name, endpoint)
	}
	server := controlplane.StartForTest(t, controlplane.Options{})
	kube := kubernetes.NewForConfigOrDie(server.RESTConfig())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{server.EtcdURL()}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = etcd.Close() })
	for i, c := range writers {
		t.Run(c.name, func(t *testing.T) {
			var text strings.Builder
			text.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
			for number, entry := range c.entries {
				fmt.Fprintf(&text, "- resources: [%s]\n  providers:\n", entry[0])
				for _, name := range strings.Fields(entry[1]) {
					// A provider's name must be unique.
					fmt.Fprintf(&text, "  - %s\n", strings.ReplaceAll(provider[name], "NUMBER", fmt.Sprint(number)))
				}
			}
			restart(t, server, []byte(text.String()))
			meta := metav1.ObjectMeta{Name: fmt.Sprintf("writers-%d", i)}
			_, err := kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta},
				metav1.CreateOptions{})
			must.Succeed(t, err)
			_, err = kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta},
				metav1.CreateOptions{})
			must.Succeed(t, err)
			stored := map[string]bool{} // prefixes of values, without the provider's number
			for _, resource := range []string{"secrets", "configmaps"} {
				got, err := etcd.Get(t.Context(), "/registry/"+resource+"/default/"+meta.Name)
				if err != nil || len(got.Kvs) != 1 {
					t.Fatal(err, got)
				}
				prefix, _, _ := bytes.Cut(got.Kvs[0].Value, []byte("-"))
				stored[string(prefix[:min(len(prefix), 20)])] = true
			}
			if all := len(stored) == 1 && stored["k8s:enc:kms:v2:"+c.key]; all != (c.key != "") {
				t.Fatalf("kube-apiserver writes with %v, want the key %q", stored, c.key)
			}
			config, err := encryptionconfig.Parse([]byte(text.String()))
			must.Succeed(t, err)
			key := delivery.WriteKey(config.Plugins)
			if (config.Mixed == "") != (c.key != "") || c.key != "" && key != c.key {
				t.Errorf("the write key is %q, mixed %q, want %q; kube-apiserver writes with %v", key, config.Mixed, c.key,
					stored)
			}
		})
	}
}

// The test has one plugin in two entries with different timeouts.
func TestTimeoutIsOneThatKubeAPIServerKeeps(t *testing.T) {
	skipUnlessCompared(t)
	dir := program.SocketDir(t)
	endpoint := "unix://" + filepath.Join(dir, "kms-0.sock")
	plugin := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: endpoint, StateDir: filepath.Join(dir, "keys")})
	const entry = "- {resources: [%s], providers: [{kms: {apiVersion: v2, name: %[1]s, endpoint: %q, timeout: %s}}]}\n"
	file := []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" +
		fmt.Sprintf(entry, "secrets", endpoint, "1s") + fmt.Sprintf(entry, "configmaps", endpoint, "10s"))
	server := controlplane.StartForTest(t, controlplane.Options{EncryptionConfig: file})
	config, err := encryptionconfig.Parse(file)
	must.Succeed(t, err)
	text, err := yaml.Marshal(v1alpha1.ReporterConfiguration{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.ReporterKind},
		Probe:    v1alpha1.Probe{Interval: v1alpha1.Duration{Duration: 30 * time.Second}},
		Plugins:  config.Plugins,
	})
	must.Succeed(t, err)
	for _, took := range []string{"100ms", "3s"} {
		must.Succeed(t, plugin.Do("slow", took, "all"))
		restart(t, server, nil)
		theirs := opinionsOf(t, server, 2)
		var output bytes.Buffer
		exit := reporter.Once(t.Context(), "-", bytes.NewReader(text), &output, t.Output())
		t.Logf("each call takes %s: kube-apiserver %q, the reporter %s", took, theirs, output.String())
		if healthy := theirs[0]+theirs[1] == ""; healthy != (exit == reporter.ExitOK) {
			t.Errorf("each call takes %s: kube-apiserver %q, the reporter %s", took, theirs, output.String())
		}
	}
}
