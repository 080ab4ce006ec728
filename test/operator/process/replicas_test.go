//go:build integration

package process

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"

	"github.com/kms-health/kms-health/pkg/version"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// One of two replicas has the lease. Both are scraped.
func TestEveryReplicaServesMetricsByTheTLSProfile(t *testing.T) {
	addresses := []string{fixture.FreeAddress(t), fixture.FreeAddress(t)}
	for _, address := range addresses {
		op := fixture.NewOperator(t, "--leader-elect=true", "--metrics-bind-address", address)
		op.Configure("apiServers: []\n")
		op.Start("")
	}
	t.Cleanup(func() { fixture.SetTLSProfile(t, "") })
	old := uint16(tls.VersionTLS10)
	if version.FIPS() != "off" { // Go does not use what FIPS 140-3 does not approve
		old = tls.VersionTLS12
	}
	for _, profile := range []struct {
		name              string
		accepted, refused uint16
	}{
		{"Modern", tls.VersionTLS13, tls.VersionTLS12}, {"Old", old, old - 1}, {"", tls.VersionTLS12, tls.VersionTLS11},
	} {
		fixture.SetTLSProfile(t, profile.name)
		for i, address := range addresses {
			fixture.Eventually(t, fmt.Sprintf("replica %d serves by the profile %q", i, profile.name), func() error {
				return errors.Join(
					handshake(address, profile.accepted, true),
					handshake(address, profile.refused, false),
				)
			})
		}
	}
}

// handshake fails unless a client with one version of TLS is accepted, or not.
func handshake(address string, version uint16, accepted bool) error {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	switch {
	case err == nil && accepted:
		return c.Close()
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("a client with %s is accepted", tls.VersionName(version))
	case accepted:
		return fmt.Errorf("a client with %s: %w", tls.VersionName(version), err)
	}
	return nil
}
