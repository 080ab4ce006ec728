//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// destination writes a configuration with these servers, or without for the kubeconfig's.
func (r *reporter) destination(resource string, servers ...string) {
	r.t.Helper()
	list := ""
	for _, s := range servers {
		list += fmt.Sprintf("\n  - {url: '%s'}", s)
	}
	if list != "" {
		list = "\n  servers:" + list
	}
	r.write(fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: 1s}
serving: {address: '%s'}
destination:
  resource: %s
  kubeconfig: %s
  writeTimeout: 2s%s
plugins:
- {endpoint: '%s', role: Write}
`, r.serving, resource, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile), list, r.endpoint("1")))
}

// credentialsFor gives the reporter a token, and a kubeconfig that names a server.
func (r *reporter) credentialsFor(server string) {
	r.t.Helper()
	token, err := cluster.ServiceAccountToken(soon(r.t), namespace, short(r.node), controlplane.TokenOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.credentials(controlplane.Kubeconfig{Server: server, Credential: controlplane.Credential{Token: token}})
}

// slowest follows the condition for a time, and returns the longest that it did not move.
func (r *reporter) slowest(resource string, last time.Time, run time.Duration) (reports int, slowest time.Duration) {
	r.t.Helper()
	moved := time.Now()
	for end := moved.Add(run); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // another process writes
		e := entries(r.t, resource, r.node)
		slowest = max(slowest, time.Since(moved))
		if len(e) > 0 && e[0].LastChecked.After(last) {
			last, moved = e[0].LastChecked, time.Now()
			reports++
		}
	}
	return reports, slowest
}

func TestReportsGoThroughTheSecondServerWhileTheFirstIsDown(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	for _, mode := range []controlplane.ProxyMode{controlplane.Refuse, controlplane.BlackHole} {
		t.Run(string(mode), func(t *testing.T) {
			first, second := proxy(t), proxy(t)
			r := newReporter(t, resource)
			r.plugin("1")
			r.credentialsFor("https://127.0.0.1:1") // not used
			r.destination(resource, first.URL(), second.URL())
			r.start()
			last := r.freshCondition(resource, "1=healthy")
			if n := second.Accepted(); n != 0 {
				t.Errorf("%d connections to the second server while the first works", n)
			}
			if err := first.SetMode(mode); err != nil {
				t.Fatal(err)
			}
			if mode == controlplane.Refuse {
				first.ResetConnections()
			}
			reports, slowest := r.slowest(resource, last[0].LastChecked, 5*time.Second)
			t.Logf("%d reports in 5s, the slowest %s after the one before", reports, slowest.Round(10*time.Millisecond))
			// A hanging server gets half of the timeout of 2s.
			if bound := 3500 * time.Millisecond; slowest > bound {
				t.Errorf("a report came %s after the one before, want at most %s", slowest, bound)
			}
			r.logged("Writing reports through another API server", `server="`+second.URL()+`"`, `previous="`+first.URL()+`"`)
			if n := r.count("Failed to write reports"); n != 0 {
				t.Errorf("%d failures are logged, though the second server took every write", n)
			}
		})
	}
}

func proxy(t *testing.T) *controlplane.Proxy {
	t.Helper()
	p, err := controlplane.NewProxy(cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
