//go:build integration

package identity

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// encryption is OpenShift's: Secrets and ConfigMaps.
const encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps]
  providers:
  - kms: {apiVersion: v2, name: plugin, endpoint: %q, timeout: 1s}
`

// encrypted is a control plane whose Secrets pass through a plugin.
func encrypted(t *testing.T) (*controlplane.ControlPlane, *kmsplugin.Plugin) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugin, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + filepath.Join(dir, "kms.sock"), StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plugin.Close(); err != nil {
			t.Error(err)
		}
	})
	c := controlplane.StartForTest(t, controlplane.Options{
		CRDs: controlplane.TechPreviewNoUpgrade, Audit: true,
		EncryptionConfig: fmt.Appendf(nil, encryption, plugin.Endpoint()),
		ExtraArgs:        []string{"--service-account-max-token-expiration=2h"},
	})
	if err := c.StartControllerManager(t.Context(), controlplane.OperatorControllers...); err != nil {
		t.Fatal(err)
	}
	return c, plugin
}

// Which credential still works while the plugin is unhealthy decides which one a
// delivery gets: only the reporter can report the outage.
func TestCredentialsDuringAPluginOutage(t *testing.T) {
	c, plugin := encrypted(t)
	s := operatorResource{controlplane.KubeAPIServers, controlplane.TechPreviewNoUpgrade}
	reporters(t, c, s) // the policy is active
	s.reset(t, asAdmin(t, c))

	o := newOperator(t, c)
	name := strings.TrimPrefix(o.want.ServiceAccount, "kms-health-reporter-")
	applyAll(t, c, documents(t, "identity.yaml", identityValues(name, s.resource))...)
	o.settle()
	if next := o.must().RenewAt; next.Sub(o.clock.Now()).Round(time.Minute) != time.Hour {
		t.Errorf("the server gives two hours at most; to be renewed at %v, and it is %v", next, o.clock.Now())
	}
	rows := []struct {
		name       string
		credential controlplane.Credential
		restarted  int // the answer after a restart while the plugin is unhealthy
	}{
		{"bound to a pod, by the kubelet", bound(t, c, "node-a"), http.StatusOK},
		{"by TokenRequest", controlplane.Credential{Token: o.data(credentials.TokenKey)}, http.StatusOK},
		{"client certificate", certified(t, c, certificateUser), http.StatusOK},
	}
	table := make([]string, len(rows))
	column := func(what string, restartedUnhealthy bool) {
		t.Helper()
		for i, row := range rows {
			want := http.StatusOK
			if restartedUnhealthy {
				want = row.restarted
			}
			eventually(t, fmt.Sprintf("%s, %s: %d", what, row.name, want), func() error {
				who := as(t, c, row.name, row.credential)
				if got := who.do(t, s.condition(t, "node-a")); got.code != want {
					return fmt.Errorf("%d %s", got.code, got.message)
				}
				// And the policy is still active.
				forged := s.apply(t, contract.ConditionManager("node-a"), s.encryption(fields{"preflight": preflight("Succeeded")}))
				if got := who.do(t, forged); want == http.StatusOK && got.outcome() != byPolicy {
					return fmt.Errorf("forged preflight: %d %s", got.code, got.message)
				}
				return nil
			})
			table[i] += fmt.Sprintf("\t%d", want)
		}
	}
	column("plugin healthy", false)
	if err := plugin.Crash(); err != nil {
		t.Fatal(err)
	}
	column("plugin unhealthy", false)
	if err := c.StopAPIServer(soon(t)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := c.StartAPIServer(t.Context()); err != nil { // which has a bound of its own
		t.Fatal(err)
	}
	t.Logf("live after %v, with an unhealthy plugin", time.Since(start).Round(time.Second))
	column("plugin unhealthy, API server restarted", true)

	// The operator can neither read nor write its Secret, and does no harm.
	before := len(o.writes())
	result := o.manager.Ensure(soon(t), o.want)
	if result.Problem == nil || result.Problem.Reason != contract.RenewalFailed {
		t.Errorf("%+v, %v", result, result.Problem)
	}
	if got := o.writes()[before:]; len(got) > 0 {
		t.Errorf("writes what it cannot read: %v", got)
	}
	if err := plugin.Return(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server reads Secrets again", func() error {
		_, err := o.admin.CoreV1().Secrets(home).Get(soon(t), o.want.Secret, metav1.GetOptions{})
		return err
	})
	column("plugin healthy again", false)
	o.settle()
	o.mustBeUnchanged()

	text := "PATCH of own condition\tplugin healthy\tunhealthy\tunhealthy, API server restarted\thealthy again\n"
	for i, row := range rows {
		text += row.name + table[i] + "\n"
	}
	show(t, text)
}
