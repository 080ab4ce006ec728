//go:build integration

package integration

import (
	"testing"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// credentialsFor writes a token for the reporter, and a kubeconfig with this server.
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
