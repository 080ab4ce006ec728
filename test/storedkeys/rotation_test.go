//go:build integration

package storedkeys

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/manifests/install"
)

const encryptionConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps, kubeapiservers.operator.openshift.io]
  providers:
  - kms: {apiVersion: v2, name: kms-1, endpoint: "unix://%s"}
  - identity: {}
- resources: [serviceaccounts]
  providers:
  - aescbc: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/ISEhISE=}]}
  - identity: {}
`

type fixture struct {
	*controlplane.ControlPlane
	plugin *kmsplugin.Plugin
	kube   kubernetes.Interface
	etcd   *clientv3.Client
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := program.SocketDir(t)
	socket := dir + "/kms-1.sock"
	plugin := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + socket, StateDir: dir + "/state"})
	f := &fixture{plugin: plugin, ControlPlane: controlplane.StartForTest(t, controlplane.Options{
		EncryptionConfig: fmt.Appendf(nil, encryptionConfig, socket), CRDs: controlplane.TechPreviewNoUpgrade,
	})}
	f.kube = kubernetes.NewForConfigOrDie(f.RESTConfig())
	f.etcd = connect(t, f.EtcdURL(), clientv3.Config{})
	return f
}

// create creates Secrets, ConfigMaps and a ServiceAccount.
func (f *fixture) create(t *testing.T, prefix string, secrets, configMaps int) {
	t.Helper()
	meta := func(i int) metav1.ObjectMeta { return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i)} }
	api, options := f.kube.CoreV1(), metav1.CreateOptions{}
	for i := range secrets {
		_, err := api.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: meta(i)}, options)
		must.Succeed(t, err)
	}
	for i := range configMaps {
		_, err := api.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta(i)}, options)
		must.Succeed(t, err)
	}
	_, err := api.ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta(0)}, options)
	must.Succeed(t, err)
}

// rotate creates a new key and restarts the API server: otherwise it writes with the new key only up to a minute later.
func (f *fixture) rotate(t *testing.T) (former string) {
	t.Helper()
	former = f.plugin.KeyID()
	_, err := f.plugin.Rotate()
	must.Succeed(t, err)
	must.Succeed(t, f.StopAPIServer(t.Context()))
	must.Succeed(t, f.StartAPIServer(t.Context()))
	must.Succeed(t, f.AwaitReady(t.Context()))
	return former
}

// counted returns the same inventory in another way: by one Range, kube-apiserver's decoder, and resources by their
// folders.
func (f *fixture) counted(t *testing.T) []row {
	t.Helper()
	all, err := f.etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	must.Succeed(t, err)
	counts := map[row]int{}
	for _, kv := range all.Kvs {
		for folder, resource := range map[string]string{
			"secrets": "secrets", "configmaps": "configmaps", "serviceaccounts": "serviceaccounts",
			"operator.openshift.io/kubeapiservers": "kubeapiservers.operator.openshift.io",
		} {
			if !bytes.HasPrefix(kv.Key, []byte("/registry/"+folder+"/")) {
				continue
			}
			r := row{Resource: resource, Provider: "identity"}
			if bytes.HasPrefix(kv.Value, []byte("k8s:enc:kms:v2:kms-1:")) {
				kekID, err := apiservers.StoredKEKID(kv.Value, "kms-1")
				must.Succeed(t, err)
				r.Provider, r.KEKID = "kms:v2:kms-1", kekID
			} else if bytes.HasPrefix(kv.Value, []byte("k8s:enc:aescbc:v1:key1:")) {
				r.Provider = "aescbc:v1:key1"
			}
			counts[r]++
		}
	}
	var rows []row
	for r, n := range counts {
		r.Objects = n
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.KEKID, b.KEKID))
	})
	return rows
}

func (f *fixture) revision(t *testing.T) int64 {
	t.Helper()
	answer, err := f.etcd.Get(t.Context(), "x")
	must.Succeed(t, err)
	return answer.Header.Revision
}

// migration returns a function that migrates resources with the two kubectl commands of the documented pipeline.
func (f *fixture) migration(t *testing.T) func(resources string) {
	t.Helper()
	config := "--kubeconfig=" + f.AdminKubeconfig(t)
	return func(resources string) {
		t.Helper()
		objects, err := install.Kubectl(t.Context(), nil, config, "get", resources, "-A", "-o", "json")
		if err == nil {
			_, err = install.Kubectl(t.Context(), objects, config, "patch", "--type=merge", "-p", "{}", "-f", "-")
		}
		must.Succeed(t, err)
	}
}

// A key is rotated, and only Secrets are migrated, as some administrators do. ConfigMaps still need the former key.
func TestAFormerKeyIsNeededUntilEveryResourceIsMigrated(t *testing.T) {
	f := newFixture(t)
	migrate := f.migration(t)
	endpoint := "--endpoints=" + f.EtcdURL()
	f.create(t, "first", 5, 17)
	first := f.rotate(t)
	f.create(t, "second", 7, 2)
	second := f.rotate(t)
	f.create(t, "third", 3, 1)

	var got inventory
	wait.Eventually(t, time.Minute, "both count the same", func() error { // the API server may write in between
		got = read(t, endpoint)
		if want := f.counted(t); !slices.Equal(got.Rows, want) {
			return fmt.Errorf("got %+v\nwant %+v", got.Rows, want)
		}
		return nil
	})
	seen := map[string]bool{}
	for _, r := range got.Rows {
		seen[r.Resource+" "+r.KEKID] = true
	}
	for _, r := range []string{"secrets " + first, "secrets " + second, "configmaps " + f.plugin.KeyID(), "serviceaccounts ",
		"kubeapiservers.operator.openshift.io " + first} {
		if !seen[r] {
			t.Errorf("no row of %s in %v", r, slices.Sorted(maps.Keys(seen)))
		}
	}

	migrate("secrets")
	code, stdout, _ := output(t, command(t, endpoint, "--kek-id", first))
	t.Logf("Secrets alone are migrated:\n%s", stdout)
	for _, want := range []string{
		fmt.Sprintf("KEK ID %q is still needed, by configmaps, kubeapiservers.operator.openshift.io", first), "\nconfigmaps  ",
		"kubectl get configmaps,kubeapiservers.operator.openshift.io -A -o json | kubectl patch --type=merge -p '{}' -f -\n",
	} {
		if code != 1 || !strings.Contains(stdout, want) {
			t.Errorf("%d, no %q in\n%s", code, want, stdout)
		}
	}
	if code, stdout, _ := output(t, command(t, endpoint, "--kek-id", first, "--resource", "secrets")); code != 0 {
		t.Errorf("%d, %s", code, stdout)
	}
	migrate("configmaps,kubeapiservers.operator.openshift.io")
	code, stdout, _ = output(t, command(t, endpoint, "--kek-id", first))
	if code != 0 || !strings.Contains(stdout, "No object below /registry needs KEK ID") {
		t.Errorf("%d, %s", code, stdout)
	}
	f.readsWithoutAnAPIServer(t)
}

// readsWithoutAnAPIServer checks that stored-keys does not write. It stops the API server, which writes too.
func (f *fixture) readsWithoutAnAPIServer(t *testing.T) {
	t.Helper()
	must.Succeed(t, f.StopAPIServer(t.Context()))
	before := f.revision(t)
	code, stdout, stderr := output(t, command(t, "--endpoints="+f.EtcdURL()))
	t.Logf("everything:\n%s", stdout)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "others)") {
		t.Errorf("%d, %s%s", code, stdout, stderr)
	}
	must.Equal(t, "etcd's revision", f.revision(t), before)
}
