package reporter

import (
	"os"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// The tests of this file are named after incidents of real plugins and of kube-apiserver,
// by the issue that reported them. (kubernetes-csi/livenessprobe 45 is in package probe.)

// finds matches one plugin with a status, a reason, and texts in its detail.
func finds(status health.Status, reason health.Reason, details ...string) func([]health.Entry) bool {
	return func(entries []health.Entry) bool {
		if len(entries) != 1 || entries[0].Status != status || entries[0].Reason != reason {
			return false
		}
		for _, detail := range details {
			if !strings.Contains(entries[0].Detail, detail) {
				return false
			}
		}
		return true
	}
}

func (h *fixture) set(p *kmsplugin.Plugin, fault string, args ...string) {
	h.t.Helper()
	if err := p.SetFault(kmsplugin.Fault{Name: fault, Args: args}); err != nil {
		h.t.Fatal(err)
	}
}

// reportsOn starts a reporter of one healthy plugin that writes.
func reportsOn(t *testing.T) (*fixture, *kmsplugin.Plugin) {
	t.Helper()
	h := newFixture(t)
	p := h.plugin("1")
	h.write("1s", "1:Write")
	h.run()
	h.await("healthy", finds(health.Healthy, ""))
	return h, p
}

// restart closes the plugin's connections and makes it listen again, like a restarted
// process.
func (h *fixture) restart(p *kmsplugin.Plugin) {
	h.t.Helper()
	if err := p.Crash(); err != nil {
		h.t.Fatal(err)
	}
	if err := p.Return(); err != nil {
		h.t.Fatal(err)
	}
}

// kubernetes-sigs/aws-encryption-provider issue 139: the right to decrypt was revoked,
// and Status stayed "ok".
func TestAWSEncryptionProvider139DecryptRevokedWhileStatusIsOK(t *testing.T) {
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultRefuseDecrypt, "PermissionDenied", "not authorized to perform: kms:Decrypt")
	h.restart(p) // or five minutes later
	h.await("the right to decrypt is missing", finds(health.Unhealthy, health.PermissionDenied, "Decrypt: PermissionDenied: not authorized to perform: kms:Decrypt"))
}

// kubernetes-sigs/aws-encryption-provider issues 74 and 26: after a restart the socket's
// file was left behind, and nothing listened on it.
func TestAWSEncryptionProvider74And26SocketFileLeftBehind(t *testing.T) {
	h, p := reportsOn(t)
	if err := p.Crash(); err != nil {
		t.Fatal(err)
	}
	h.await("the file is left behind", finds(health.Error, health.ConnectFailed, "connection refused: nothing listens on it", "leaves its socket's file behind"))
	if err := p.Return(); err != nil {
		t.Fatal(err)
	}
	h.await("it listens again", finds(health.Healthy, ""))
}

// ttypic/vault-kubernetes-kms issue 304: the token of the plugin expired after hours, and
// its Status reported only that it is not healthy.
func TestVaultKubernetesKMS304TokenExpiresAfterHours(t *testing.T) {
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultRefuseEncrypt, "PermissionDenied", "permission denied: invalid token")
	h.set(p, kmsplugin.FaultUnhealthy, "err")
	h.await("Encrypt has the cause", finds(health.Unhealthy, health.PermissionDenied, `healthz is "err", not "ok"; Encrypt: PermissionDenied: permission denied: invalid token`))
}

// The same project's issue 201: connections were refused after some time.
func TestVaultKubernetesKMS201ConnectionRefusedAfterSomeTime(t *testing.T) {
	h, p := reportsOn(t)
	for range 3 {
		if err := p.Crash(); err != nil {
			t.Fatal(err)
		}
		h.await("refused", finds(health.Error, health.ConnectFailed, "connection refused"))
		if err := p.Return(); err != nil {
			t.Fatal(err)
		}
		h.await("detected by the next probe", finds(health.Healthy, ""))
	}
}

// kubernetes/kubernetes issue 138950: with a healthz other than ok and a valid key_id,
// kube-apiserver goes on writing. The report has both.
func TestKubernetes138950HealthzIsNotOKWithAValidKeyID(t *testing.T) {
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultUnhealthy, "remote KMS is degraded")
	h.await("unhealthy, with the key", func(entries []health.Entry) bool {
		return finds(health.Unhealthy, health.ReportedUnhealthy, "remote KMS is degraded")(entries) && entries[0].KEKID == p.KeyID()
	})
}

// Failures that a Status of "ok" hides (verified with third-party plugins), and the
// report on each.
func TestRoundTripDetectsFailuresThatStatusHides(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  string
		reason health.Reason
		detail string
	}{
		"Decrypt refused":     {kmsplugin.FaultRefuseDecrypt, health.PermissionDenied, "Decrypt: PermissionDenied: decrypt refused"},
		"Encrypt refused":     {kmsplugin.FaultRefuseEncrypt, health.PermissionDenied, "Encrypt: PermissionDenied: encrypt refused"},
		"wrong plaintext":     {kmsplugin.FaultWrongDecrypt, health.RoundTripMismatch, "is 32 bytes that differ from the 32 that were encrypted"},
		"shortened plaintext": {kmsplugin.FaultShortDecrypt, health.RoundTripMismatch, "is 31 bytes that differ from the 32 that were encrypted"},
		"old ciphertext lost": {kmsplugin.FaultReplacedKey, health.RoundTripMismatch, "under the same key_id can no longer be decrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			h, p := reportsOn(t)
			h.set(p, tt.fault)
			h.restart(p)
			h.await("the fault is seen", finds(health.Unhealthy, tt.reason, tt.detail))
			h.skip()
			h.await("its verdict is kept until the next", finds(health.Unhealthy, tt.reason, tt.detail))
		})
	}
}

// One plugin's Status reports the former key for one probe after a rotation.
func TestRotationWithALaggingStatusIsNoAlarm(t *testing.T) {
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultLaggingStatus)
	if _, err := p.Rotate(); err != nil {
		t.Fatal(err)
	}
	h.await("the new key, and no alarm before", func(entries []health.Entry) bool {
		if entries[0].Status != health.Healthy {
			t.Errorf("%+v", entries[0])
		}
		return entries[0].KEKID == p.KeyID() && h.reporter.metrics != nil && p.Calls(kmsplugin.CallEncrypt).Count >= 2
	})
}

// No later round trip would replace the verdict of a check that is turned off.
func TestRoundTripsTurnedOffLeaveNoVerdict(t *testing.T) {
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultRefuseDecrypt)
	h.restart(p)
	h.await("the fault is seen", finds(health.Unhealthy, health.PermissionDenied))
	config, err := os.ReadFile(h.file)
	if err != nil {
		t.Fatal(err)
	}
	h.writeRaw(strings.Replace(string(config), "probe: {", "probe: {checks: {roundTrip: {interval: 0s}}, ", 1))
	h.await("its verdict goes", finds(health.Healthy, ""))
}

// A Read plugin may reject Encrypt: the round trip's verdict on it as a Write plugin is
// dropped.
func TestPluginThatBecameReadNeedNotEncrypt(t *testing.T) {
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultRefuseEncrypt)
	h.restart(p)
	h.await("the writer may not encrypt", finds(health.Unhealthy, health.PermissionDenied))
	h.write("1s", "1:Read")
	h.await("a Read plugin need not encrypt", finds(health.Healthy, ""))
}
