//go:build integration

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// One control plane serves the tests that leave it as they found it; a start is
// seconds of CPU time.
func TestControlPlane(t *testing.T) {
	start := time.Now()
	c := StartForTest(t, Options{Audit: true, CRDs: Default})
	t.Logf("started with CRDs in %v", time.Since(start).Round(time.Millisecond))

	for _, test := range []struct {
		name string
		run  func(*testing.T, *ControlPlane)
	}{
		{"authorization and admission are on", testAuthorizationAndAdmission},
		{"an administrator may come by certificate", testAdminCertificate},
		{"the operators' objects are there", testOperatorObjects},
		{"a reporter may patch its status and nothing else", testReporterIdentity},
		{"a reporter may come by certificate", testReporterCertificate},
		{"the CRD variant is changed and changed back", testVariantSwitch},
		{"a frozen server does not answer and a thawed one does", testFreeze},
		{"a stopped server refuses connections and restarts with its objects", testStopStart},
		{"a killed server is restarted", testKill},
		{"a proxy cuts off the server", testProxyInFront},
		{"the serving certificate is replaced under a running server", testServingCertificate},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

func testAuthorizationAndAdmission(t *testing.T, c *ControlPlane) {
	if err := getOK(t.Context(), c.adminClient(), c.URL()+"/api/v1/namespaces", ""); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("an anonymous list got %v, not 403", err)
	}
	// The ServiceAccount plugin refuses a pod of an account that is not there.
	_, err := adminClientset(t, c).CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "any"},
		Spec:       corev1.PodSpec{ServiceAccountName: "nobody", Containers: []corev1.Container{{Name: "any", Image: "any"}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the pod got %v, not forbidden", err)
	}
}

func testAdminCertificate(t *testing.T, c *ControlPlane) {
	pair, err := c.ClientCertificate(time.Hour, "certified", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client := clientset(t, c.RESTConfigAs(Credential{Certificate: pair}))
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func testFreeze(t *testing.T, c *ControlPlane) {
	if err := c.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.ThawAPIServer(); err != nil {
			t.Error(err)
		}
	})
	// The kernel accepts for it.
	conn, err := net.DialTimeout("tcp", c.Address(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	ctx := deadline(t, 500*time.Millisecond)
	if err := getOK(ctx, c.adminClient(), c.URL()+"/livez", c.adminToken); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the frozen server: got %v, not a timeout", err)
	}
	if err := c.ThawAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(deadline(t, 30*time.Second)); err != nil {
		t.Error(err)
	}
}

func testStopStart(t *testing.T, c *ControlPlane) {
	client := adminClientset(t, c)
	_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := serviceAccountToken(t, c, "stop-start")
	// Must not hold up the end.
	watch, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	address, pid, start := c.Address(), c.APIServerPID(), time.Now()
	if err := c.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	t.Logf("stopped in %v", took.Round(time.Millisecond))
	if took >= apiServerStopGrace {
		t.Error("it did not end in order: an open watch held it up")
	}
	if c.APIServerPID() != 0 {
		t.Error("it still has a process id")
	}
	if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		conn.Close()
		t.Error("its port still answers")
	}
	for name, call := range map[string]func() error{
		"freeze":     c.FreezeAPIServer,
		"readiness":  func() error { return c.AwaitReady(t.Context()) },
		"audit":      func() error { return c.AuditFence(t.Context()) },
		"wrong etcd": func() error { _, err := c.EtcdGet(t.Context(), "/nothing"); return err },
	} {
		if call() == nil {
			t.Errorf("%s: no error while the server is stopped", name)
		}
	}

	restart(t, c)
	if c.Address() != address || c.APIServerPID() == pid {
		t.Errorf("it is at %s with pid %d, was at %s with %d", c.Address(), c.APIServerPID(), address, pid)
	}
	kept, err := adminClientset(t, c).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || kept.Data["key"] != "value" {
		t.Errorf("the object after the restart: %v, %v", kept.Data, err)
	}
	// 403 reports: known, and not allowed.
	old := clientset(t, c.RESTConfigAs(Credential{Token: token}))
	if _, err := old.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a token from before the restart got %v, not forbidden", err)
	}
	if err := c.StartAPIServer(t.Context()); err == nil {
		t.Error("a second start beside a running server succeeded")
	}
}

func testKill(t *testing.T, c *ControlPlane) {
	if err := c.AuditFence(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := c.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	restart(t, c)
	after, err := c.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	if len(after) <= len(before) || after[0].AuditID != before[0].AuditID {
		t.Errorf("the audit log has %d events after a restart, %d before", len(after), len(before))
	}
}

func testProxyInFront(t *testing.T, c *ControlPlane) {
	p, err := NewProxy(c.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	get := func() error { return getOK(t.Context(), c.adminClient(), p.URL()+"/readyz", c.adminToken) }
	if err := get(); err != nil {
		t.Fatal(err)
	}
	setMode(t, p, Refuse)
	if err := get(); err == nil {
		t.Error("a refused connection answered")
	}
	setMode(t, p, BlackHole)
	if err := get(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the black hole: got %v, not a timeout", err)
	}
	setMode(t, p, Pass)
	if err := get(); err != nil {
		t.Error(err)
	}
}

func testServingCertificate(t *testing.T, c *ControlPlane) {
	former := c.RESTConfig()
	ca, err := NewCA("another")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := c.ReplaceServingCertificate(t.Context(), ca, "only.example"); err != nil {
		t.Fatal(err)
	}
	t.Logf("reloaded in %v", time.Since(start).Round(time.Millisecond))
	if _, err := clientset(t, former).Discovery().ServerVersion(); err == nil {
		t.Error("a client of the former CA is served")
	}
	if _, err := adminClientset(t, c).Discovery().ServerVersion(); err != nil {
		t.Errorf("a client of the new CA: %v", err)
	}
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	restart(t, c)
}

func TestSecretsAreEncryptedInEtcd(t *testing.T) {
	c := StartForTest(t, Options{EncryptionConfig: []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: one
        secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=
  - identity: {}
`)})
	client, ctx := adminClientset(t, c), t.Context()
	meta := metav1.ObjectMeta{Name: "one"}
	data := map[string]string{"word": "in-the-clear"}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: data}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret, err := c.EtcdGet(ctx, "/registry/secrets/default/one")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(secret, []byte("k8s:enc:secretbox:v1:one:")) || bytes.Contains(secret, []byte("in-the-clear")) {
		t.Errorf("the Secret is not encrypted: %q", secret)
	}
	config, err := c.EtcdGet(ctx, "/registry/configmaps/default/one")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(config, []byte("in-the-clear")) {
		t.Errorf("the ConfigMap is not in the clear: %q", config)
	}
	if _, err := c.EtcdGet(ctx, "/registry/secrets/default/two"); !errors.Is(err, ErrKeyNotFound) {
		t.Errorf("a missing key got %v", err)
	}
	if _, err := c.AuditEvents(); err == nil {
		t.Error("audit events without an audit log")
	}
}

func TestAServerWithAnUnhealthyPluginServesAndIsNotReady(t *testing.T) {
	c := StartForTest(t, Options{LivezOnly: true, EncryptionConfig: []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms:
      apiVersion: v2
      name: absent
      endpoint: unix://` + filepath.Join(t.TempDir(), "absent.sock") + `
      timeout: 1s
`)})
	if err := c.AwaitReady(deadline(t, time.Second)); err == nil || !strings.Contains(err.Error(), "[-]kms-providers") {
		t.Errorf("the wait for readiness got %v", err)
	}
	// A Secret is not served, and what a reporter needs is.
	_, err := adminClientset(t, c).CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
	}, metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) {
		t.Errorf("the Secret got %v, not an internal error", err)
	}
	if err := c.ApplyOperatorCRDs(t.Context(), TechPreviewNoUpgrade); err != nil {
		t.Error(err)
	}
	serviceAccountToken(t, c, "unhealthy")
}

func TestAFailedStartShowsTheReasonAndLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	_, err := Start(t.Context(), Options{Dir: dir, ExtraArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver.log")); err != nil {
		t.Errorf("a given folder is kept: %v", err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second start in that folder got %v", err)
	}
}

func restart(t *testing.T, c *ControlPlane) {
	t.Helper()
	start := time.Now()
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready again in %v", time.Since(start).Round(time.Millisecond))
}

func adminClientset(t *testing.T, c *ControlPlane) *kubernetes.Clientset {
	t.Helper()
	return clientset(t, c.RESTConfig())
}

// clientset closes its connections with the test: client-go would keep them.
func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfigAndClient(config, httpClient(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func httpClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func serviceAccountToken(t *testing.T, c *ControlPlane, name string) string {
	t.Helper()
	namespace := fmt.Sprintf("test-%s", name)
	if err := c.CreateServiceAccount(t.Context(), namespace, name); err != nil {
		t.Fatal(err)
	}
	token, err := c.ServiceAccountToken(t.Context(), namespace, name, TokenOptions{Lifetime: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return token
}
