//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestReportIsWrittenWhenItChangesAndElseAfterUnchangedEvery(t *testing.T) {
	const resource, every = controlplane.KubeAPIServers, 15 * time.Second
	r := newReporter(t, resource)
	r.token()
	one := r.plugin("1")
	r.configureEvery(resource, every)
	began := time.Now()
	r.start()
	r.freshCondition("1=healthy")
	writes := r.written("success")
	calls := one.Calls(kmsplugin.CallStatus).Count
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, calls+4); err != nil {
		t.Fatal(err)
	}
	if now := r.written("success"); now != writes && time.Since(began) < every {
		t.Errorf("%s writes in four rounds without a change, %s before", now, writes)
	}
	if err := one.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"sealed"}}); err != nil {
		t.Fatal(err)
	}
	r.freshCondition("1=unhealthy") // a change is written at once
	if got := entries(t, resource, r.node)[0].Interval; got != every {
		t.Errorf("the entry's interval is %s, want %s", got, every)
	}
	r.freshCondition("1=unhealthy") // and written again after unchangedEvery
	if _, view := r.get("/healthz?verbose"); !strings.Contains(view, "[+]write ok") {
		t.Errorf("/healthz?verbose: %s", view)
	}
}

// configureEvery is configure for plugin 1, with unchangedEvery.
func (r *reporter) configureEvery(resource string, every time.Duration) {
	r.t.Helper()
	r.write(fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: 1s}
serving: {address: '%s'}
destination: {resource: %s, kubeconfig: %s, unchangedEvery: %s}
plugins: [{endpoint: '%s', role: Write}]
`, r.serving, resource, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile), every, r.endpoint("1")))
}
