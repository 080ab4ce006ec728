package reporter

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// finds matches one plugin with a status, a reason, and texts in its detail.
func finds(status contract.Status, reason contract.Reason, details ...string) func([]contract.Entry) bool {
	return func(entries []contract.Entry) bool {
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
	h.await("healthy", finds(contract.Healthy, ""))
	return h, p
}

// rotate makes a round trip due.
func (h *fixture) rotate(p *kmsplugin.Plugin) {
	h.t.Helper()
	if _, err := p.Rotate(); err != nil {
		h.t.Fatal(err)
	}
}

// No later round trip would replace the verdict of a check that is turned off.
func TestRoundTripsTurnedOffLeaveNoVerdict(t *testing.T) {
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultRefuseDecrypt)
	h.rotate(p)
	h.await("the fault is seen", finds(contract.Unhealthy, contract.PermissionDenied))
	config, err := os.ReadFile(h.file)
	if err != nil {
		t.Fatal(err)
	}
	h.writeRaw(strings.Replace(string(config), "probe: {", "probe: {checks: {roundTrip: {interval: 0s}}, ", 1))
	h.await("its verdict goes", finds(contract.Healthy, ""))
}

// kube-apiserver does not become ready, and decrypts nothing, with a Read plugin that rejects
// Encrypt.
func TestReadPluginMustEncrypt(t *testing.T) {
	h := newFixture(t)
	p := h.plugin("1")
	h.set(p, kmsplugin.FaultRefuseEncrypt)
	h.write("1s", "1:Read")
	h.run()
	h.await("it may not encrypt", finds(contract.Unhealthy, contract.PermissionDenied, "Encrypt: PermissionDenied"))
}

// What was written can no longer be read, and a plugin that is unhealthy meanwhile has no other
// cause: the verdict stays after its Status is ok again, until a round trip succeeds.
func TestVerdictOfARoundTripOutlastsAnUnhealthyStatus(t *testing.T) {
	t.Parallel() // it waits
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultReplacedKey)
	h.set(p, kmsplugin.FaultUnhealthy, "err")
	lost := finds(contract.Unhealthy, contract.RoundTripMismatch, "under the same key_id can no longer be decrypted")
	h.await("the cause beside healthz", lost)
	if err := p.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	h.await("Status is ok", func(entries []contract.Entry) bool {
		return lost(entries) && !strings.Contains(entries[0].Detail, "healthz")
	})
	h.rotate(p)
	h.await("a round trip succeeds", finds(contract.Healthy, ""))
}

// A plugin whose process ends at each Encrypt answers Status all the time.
func TestPluginThatEndsAtEachEncryptIsInError(t *testing.T) {
	t.Parallel() // it waits
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultHang, "encrypt")
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for seen := p.Calls(kmsplugin.CallEncrypt).Count; ; time.Sleep(5 * time.Millisecond) {
			select {
			case <-stop:
				return
			default:
			}
			if now := p.Calls(kmsplugin.CallEncrypt).Count; now > seen {
				seen = now
				_ = p.Crash()
				_ = p.Return()
			}
		}
	}()
	h.rotate(p)
	h.await("three round trips could not be made", finds(contract.Error, contract.Unavailable, "the connection broke during each of the last 3 round trips, while Status was answered: Encrypt: "))
	entries, unobserved := once(t.Context(), h.reporter.config) // it may meet the plugin while it does not listen
	if len(entries) != 1 || entries[0].Status != contract.Error || len(unobserved) != 0 {
		t.Errorf("probed once: %+v, %v", entries, unobserved)
	}
}

// A plugin whose process ends at the first Encrypt, and does not return, no longer answers Status.
func TestPluginThatIsGoneAfterEncryptIsProbedAgainByOnce(t *testing.T) {
	h := newFixture(t)
	p := h.plugin("1")
	h.set(p, kmsplugin.FaultHang, "encrypt")
	h.write("10s", "1:Write")
	go func() {
		if p.WaitForCalls(t.Context(), kmsplugin.CallEncrypt, 1) == nil {
			_ = p.Crash()
		}
	}()
	file, err := os.ReadFile(h.file)
	if err != nil {
		t.Fatal(err)
	}
	entries, unobserved := once(t.Context(), read(filewatch.Content{Data: file}).config)
	if !finds(contract.Error, contract.ConnectFailed, "connection refused")(entries) || len(unobserved) != 0 {
		t.Errorf("%+v, %v", entries, unobserved)
	}
}

// kube-apiserver is not healthy with a plugin whose Encrypt names another key_id than its Status.
func TestKeyIDThatChangesAtEachProbeIsReported(t *testing.T) {
	h, p := reportsOn(t)
	stop := make(chan struct{})
	rotated := make(chan struct{})
	go func() {
		defer close(rotated)
		for {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
				_, _ = p.Rotate()
			}
		}
	}()
	h.await("it alternates", finds(contract.Unhealthy, contract.ProtocolViolation, "key_id changed twice within an interval"))
	close(stop)
	<-rotated
	h.await("it does no longer", finds(contract.Healthy, ""))
}
