package reporter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// finds accepts a report of one plugin with this status and reason, and this text in its detail.
func finds(status contract.Status, reason contract.Reason, detail string) func([]contract.Entry) bool {
	return func(entries []contract.Entry) bool {
		return len(entries) == 1 && entries[0].Status == status && entries[0].Reason == reason &&
			strings.Contains(entries[0].Detail, detail)
	}
}

func (h *fixture) set(p *kmsplugin.Plugin, fault string, args ...string) {
	h.t.Helper()
	must.Succeed(h.t, p.SetFault(kmsplugin.Fault{Name: fault, Args: args}))
}

// reportsOn starts a reporter with one healthy plugin, whose role is Write.
func reportsOn(t *testing.T) (*fixture, *kmsplugin.Plugin) {
	t.Helper()
	h := newFixture(t)
	p := h.plugin("1")
	h.write("1s", "1:Write")
	h.run()
	h.await("healthy", finds(contract.Healthy, "", ""))
	return h, p
}

// rotate rotates the plugin's key, which makes a round trip due.
func (h *fixture) rotate(p *kmsplugin.Plugin) {
	h.t.Helper()
	_, err := p.Rotate()
	must.Succeed(h.t, err)
}

// kube-apiserver does not become ready, and decrypts nothing, with a Read plugin that rejects Encrypt. Turning round
// trips off must drop their verdict, because no later round trip would replace it.
func TestReadPluginMustEncryptUnlessRoundTripsAreOff(t *testing.T) {
	h := newFixture(t)
	h.set(h.plugin("1"), kmsplugin.FaultRefuseEncrypt)
	h.write("1s", "1:Read")
	h.run()
	h.await("it may not encrypt", finds(contract.Unhealthy, contract.PermissionDenied, "Encrypt: PermissionDenied"))
	h.write("1s, checks: {roundTrip: {interval: 0s}}", "1:Read")
	h.await("its verdict goes", finds(contract.Healthy, "", ""))
}

// A plugin whose process ends at each Encrypt may still answer every Status.
func TestPluginThatEndsAtEachEncryptIsInError(t *testing.T) {
	t.Parallel() // it waits
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultHang, "encrypt")
	go func() {
		next := func() int64 { return p.Calls(kmsplugin.CallEncrypt).Count + 1 }
		for n := next(); p.WaitForCalls(t.Context(), kmsplugin.CallEncrypt, n) == nil; {
			n = next() // there are no calls between the crash and the return
			_, _ = p.Crash(), p.Return()
		}
	}()
	h.rotate(p)
	h.await("two round trips could not be made", finds(contract.Error, contract.Unavailable, "the connection broke during each of the last 2 round trips, so the plugin may end at this call: Encrypt: "))
	entries, unobserved := once(t.Context(), h.reporter.config) // the plugin may not listen at that moment
	if len(entries) != 1 || entries[0].Status != contract.Error || len(unobserved) != 0 {
		t.Errorf("probed once: %+v, %v", entries, unobserved)
	}
}

// A restart between two probes causes no error, but the plugin may have another key after it.
func TestPluginThatRestartsBetweenProbesIsChecked(t *testing.T) {
	t.Parallel() // it waits
	h, p := reportsOn(t)
	h.write("3s", "1:Write")
	h.set(p, kmsplugin.FaultRefuseDecrypt)
	must.Succeed(t, p.Crash())
	must.Succeed(t, p.Return())
	h.await("its Decrypt is refused, minutes before a round trip is due", finds(contract.Unhealthy, contract.PermissionDenied, "Decrypt: "))
}

// The plugin's process ends at the first Encrypt, and stays down. The verdict must be that nothing listens.
func TestPluginThatIsGoneAfterEncryptIsProbedAgainByOnce(t *testing.T) {
	h := newFixture(t)
	p := h.plugin("1")
	h.set(p, kmsplugin.FaultHang, "encrypt")
	go func() {
		if p.WaitForCalls(t.Context(), kmsplugin.CallEncrypt, 1) == nil {
			_ = p.Crash()
		}
	}()
	entries, unobserved := once(t.Context(), decode(t, fmt.Sprintf("{endpoint: '%s', role: Write}", h.endpoint("1"))))
	if !finds(contract.Error, contract.ConnectFailed, "connection refused")(entries) || len(unobserved) != 0 {
		t.Errorf("%+v, %v", entries, unobserved)
	}
}
