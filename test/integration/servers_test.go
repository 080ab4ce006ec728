//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// destination writes a configuration with these servers.
func (r *reporter) destination(resource string, servers ...string) {
	r.t.Helper()
	list := "\n  servers:"
	for _, s := range servers {
		list += fmt.Sprintf("\n  - {url: '%s'}", s)
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

func proxy(t *testing.T) *controlplane.Proxy {
	t.Helper()
	p, err := controlplane.NewProxy(cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
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
			r.freshCondition(resource, "1=healthy")
			if n := second.Accepted(); n != 0 {
				t.Errorf("%d connections to the second server while the first works", n)
			}
			if err := first.SetMode(mode); err != nil {
				t.Fatal(err)
			}
			if mode == controlplane.Refuse {
				first.ResetConnections()
			}
			r.logged("Writing reports through another API server", `server="`+second.URL()+`"`, `previous="`+first.URL()+`"`)
			for range 3 {
				r.freshCondition(resource, "1=healthy")
			}
		})
	}
}
