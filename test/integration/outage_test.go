//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// startAgain brings the API server back, also when the test ends early.
func startAgain(t *testing.T) {
	t.Helper()
	if cluster.APIServerPID() == 0 {
		if err := cluster.StartAPIServer(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReporterStartsAndProbesWithoutAnAPIServer(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.token()
	one := r.plugin("1")
	r.configure(resource, "Both", "1:Write")
	if err := cluster.StopAPIServer(soon(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { startAgain(t) })
	r.start()
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the local view is healthy", func() bool { _, text := r.get("/kms-providers"); return text == "ok" })
	r.writes("Condition", "unreachable")
	startAgain(t)
	back := time.Now()
	r.freshCondition(resource, "1=healthy")
	t.Logf("fresh %s after the API server was live", time.Since(back).Round(time.Millisecond))
	eventually(t, "the typed report arrives too", func() bool { return len(reports(t, resource, r.node)) == 1 })
	if n := r.count(`result="unreachable"`); n != 2 { // one per form
		t.Errorf("logged %d times, want once per form", n)
	}
}

func TestOutageDoesNotAffectProbingAndIsFollowedByAReportAtOnce(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r, one := reporting(t, "Condition")
	if err := cluster.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { startAgain(t) })
	r.logged("Failed to write reports", `result="unreachable"`)
	if err := one.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"sealed meanwhile"}}); err != nil {
		t.Fatal(err)
	}
	calls := one.Calls(kmsplugin.CallStatus).Count
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, calls+3); err != nil {
		t.Fatal(err)
	}
	startAgain(t)
	r.freshCondition(resource, "1=unhealthy") // the latest, not the last one tried
	r.logged("Writing reports works")
}

func TestFrozenAPIServerTimesOutAndThawedIsWrittenTo(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r, one := reporting(t, "Both")
	if err := cluster.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	thaw := func() {
		if err := cluster.ThawAPIServer(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(thaw)
	r.logged("Failed to write reports", `result="timeout"`)
	calls := one.Calls(kmsplugin.CallStatus).Count
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, calls+4); err != nil {
		t.Fatal(err)
	}
	r.writes("Condition", "timeout")
	r.writes("HealthReports", "timeout")
	thaw()
	r.freshCondition(resource, "1=healthy")
}

func TestFrozenAPIServerDoesNotDelayTheEnd(t *testing.T) {
	r, one := reporting(t, "Both")
	if err := cluster.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.ThawAPIServer(); err != nil {
			t.Fatal(err)
		}
	})
	if err := one.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultHang}); err != nil {
		t.Fatal(err)
	}
	calls := one.Calls(kmsplugin.CallStatus).Count
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, calls+1); err != nil {
		t.Fatal(err)
	}
	r.stop() // wants it within two seconds
}

func TestNetworkThatDropsAllPacketsDoesNotEndTheReporter(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	proxy, err := controlplane.NewProxy(cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	token, err := cluster.ServiceAccountToken(soon(t), namespace, short(r.node), controlplane.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.credentials(controlplane.Kubeconfig{Server: proxy.URL(), Credential: controlplane.Credential{Token: token}})
	r.plugin("1")
	r.configure(resource, "Condition", "1:Write")
	r.start()
	r.freshCondition(resource, "1=healthy")
	for _, mode := range []controlplane.ProxyMode{controlplane.BlackHole, controlplane.Refuse} {
		if err := proxy.SetMode(mode); err != nil {
			t.Fatal(err)
		}
		proxy.ResetConnections()
		r.writes("Condition", map[controlplane.ProxyMode]string{controlplane.BlackHole: "timeout", controlplane.Refuse: "unreachable"}[mode])
		if err := proxy.SetMode(controlplane.Pass); err != nil {
			t.Fatal(err)
		}
		r.freshCondition(resource, "1=healthy")
	}
}

func TestReplacedServingCertificateIsTrustedWithItsCA(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r, _ := reporting(t, "Condition")

	ca, err := controlplane.NewCA("another-ca")
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.ReplaceServingCertificate(soon(t), ca, "127.0.0.1", "localhost"); err != nil {
		t.Fatal(err)
	}
	// A kept connection goes on; only a new one meets the new certificate.
	if err := cluster.StopAPIServer(soon(t)); err != nil {
		t.Fatal(err)
	}
	startAgain(t)
	r.logged("Failed to write reports", `result="tls"`)
	replace(t, filepath.Join(r.credentialDir(), controlplane.KubeconfigCAFile), ca.PEM())
	r.freshCondition(resource, "1=healthy")
}

func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestReplacedTokenIsUsedWithoutARestart(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t, resource)
	r.credentials(controlplane.Kubeconfig{Credential: controlplane.Credential{Token: "nobody's"}})
	r.plugin("1")
	r.configure(resource, "Condition", "1:Write")
	r.start()
	r.logged("Failed to write reports", `result="unauthorized"`)
	token, err := cluster.ServiceAccountToken(soon(t), namespace, short(r.node), controlplane.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(r.credentialDir(), controlplane.KubeconfigTokenFile), []byte(token))
	r.freshCondition(resource, "1=healthy")
}

func TestPermissionThatIsGrantedLaterIsUsed(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t) // no right yet
	r.token()
	r.plugin("1")
	r.configure(resource, "Condition", "1:Write")
	r.start()
	r.logged("Failed to write reports", `result="forbidden"`)
	if err := cluster.AllowStatusPatch(soon(t), r.user, resource); err != nil {
		t.Fatal(err)
	}
	r.freshCondition(resource, "1=healthy")
}

func TestClientCertificateIsReplacedWithoutARestart(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	r := newReporter(t)
	audit, err := cluster.AuditTail()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{certificateUser + ":first", certificateUser + ":second"}
	for _, name := range names {
		if err := cluster.AllowStatusPatch(soon(t), name, resource); err != nil {
			t.Fatal(err)
		}
	}
	r.plugin("1")
	r.configure(resource, "Condition", "1:Write")
	for i, name := range names {
		pair, err := cluster.ClientCertificate(time.Hour, name)
		if err != nil {
			t.Fatal(err)
		}
		// The key and its certificate are two files, so for a moment they do not fit.
		r.credentials(controlplane.Kubeconfig{Credential: controlplane.Credential{Certificate: pair}})
		if i == 0 {
			r.start()
		}
		eventually(t, "writes as "+name, func() bool {
			events, err := audit.ByUser(name, func(e *auditv1.Event) bool { return e.ResponseStatus != nil && e.ResponseStatus.Code == 200 })
			return err == nil && len(events) > 0
		})
		r.freshCondition(resource, "1=healthy")
	}
}

// The role of a reporter, as the docs give it, is enough; and no wider one is
// ever used, which the audit log proves at the end of the run.
func TestMinimalRoleIsEnough(t *testing.T) {
	const resource = controlplane.Authentications
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	r := newReporter(t)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "minimal-reporter"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{controlplane.OperatorGroup}, Resources: []string{resource + "/status"},
			ResourceNames: []string{controlplane.ClusterObject}, Verbs: []string{"patch"},
		}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(soon(t), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "minimal-reporter"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: short(r.node)}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(soon(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.token()
	r.plugin("1")
	r.configure(resource, "Both", "1:Write")
	r.start()
	r.freshCondition(resource, "1=healthy")
	eventually(t, "the typed report", func() bool { return len(reports(t, resource, r.node)) == 1 })
}
