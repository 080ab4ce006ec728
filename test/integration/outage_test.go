//go:build integration

package integration

import (
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// startAgain starts the API server unless it runs. Cleanups call it too.
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
	r.configure(resource, "1:Write")
	if err := cluster.StopAPIServer(soon(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { startAgain(t) })
	began := time.Now()
	r.start()
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, 3); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the local view is healthy", func() bool { _, text := r.get("/kms-providers"); return text == "ok" })
	r.writes("unreachable")
	startAgain(t)
	back := time.Now()
	r.freshCondition("1=healthy")
	t.Logf("fresh %s after the API server was live", time.Since(back).Round(time.Millisecond))
	most := 1 + int(time.Since(began)/time.Minute) // each cause once a minute
	if n := r.count(`result="unreachable"`); n < 1 || n > most {
		t.Errorf("logged %d times, want 1 to %d", n, most)
	}
}

func TestOutageDoesNotAffectProbingAndIsFollowedByAReportAtOnce(t *testing.T) {
	r, one := reporting(t)
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
	r.freshCondition("1=unhealthy") // the latest report, not the one of the failed write
	r.logged("Writing reports works")
}

func TestFrozenAPIServerTimesOutAndThawedIsWrittenTo(t *testing.T) {
	r, one := reporting(t)
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
	r.writes("timeout")
	thaw()
	r.freshCondition("1=healthy")
}

func TestUsersCertificateIsReplacedWithoutARestart(t *testing.T) {
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
	r.configure(resource, "1:Write")
	for i, name := range names {
		pair, err := cluster.SignUser(time.Hour, name)
		if err != nil {
			t.Fatal(err)
		}
		// The key and the certificate are two files, so for a moment they do not match.
		r.credentials(controlplane.Kubeconfig{Credential: controlplane.Credential{Certificate: pair}})
		if i == 0 {
			r.start()
		}
		eventually(t, "writes as "+name, func() bool {
			events, err := audit.ByUser(name, func(e *auditv1.Event) bool { return e.ResponseStatus != nil && e.ResponseStatus.Code == 200 })
			return err == nil && len(events) > 0
		})
		r.freshCondition("1=healthy")
	}
}
