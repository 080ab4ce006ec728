package reporter

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
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

// The process returns only after two probes, which find no listener.
func TestPluginThatEndsAtEachEncryptIsInError(t *testing.T) {
	t.Parallel() // it waits
	h, p := reportsOn(t)
	h.set(p, kmsplugin.FaultEndsAt, "encrypt", "2500ms")
	h.rotate(p)
	for _, then := range []struct {
		reason contract.Reason
		detail string
	}{
		{contract.ConnectFailed, "; before, the connection broke during a round trip, so the plugin may end at this call: Encrypt: "},
		{contract.Unavailable, "the connection broke during each of the last 2 round trips, so the plugin may end at this call: "},
	} {
		h.await(string(then.reason), func(entries []contract.Entry) bool {
			if len(entries) == 1 && entries[0].Status == contract.Healthy && entries[0].KEKID == p.KeyID() {
				t.Errorf("healthy under the new key: %+v", entries)
			}
			return finds(contract.Error, then.reason, then.detail)(entries)
		})
	}
	entries, unobserved := once(t.Context(), h.reporter.config) // the plugin may not listen at that moment
	if len(entries) != 1 || entries[0].Status != contract.Error || len(unobserved) != 0 {
		t.Errorf("probed once: %+v, %v", entries, unobserved)
	}
}

// relay listens at the socket of plugin 1, and forwards to a plugin behind another socket, until cut breaks the
// connections. As with systemd's socket activation, the socket outlives the plugin's process.
func (h *fixture) relay(plugin *kmsplugin.Plugin) (cut func()) {
	listener, err := net.Listen("unix", strings.TrimPrefix(h.endpoint("1"), "unix://"))
	must.Succeed(h.t, err)
	var mu sync.Mutex
	var open []net.Conn
	cut = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range open {
			_ = conn.Close()
		}
		open = nil
	}
	h.t.Cleanup(func() { _ = listener.Close(); cut() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", strings.TrimPrefix(plugin.Endpoint(), "unix://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			go func() { _, _ = io.Copy(server, client) }()
			go func() { _, _ = io.Copy(client, server) }()
		}
	}()
	return cut
}

// Neither Status nor the socket's file shows that the process ends at each Encrypt. The round trip must be repeated at
// once: the next regular one may come hours later, and would only then be the second that could not be made.
func TestRoundTripThatCouldNotBeMadeIsRepeatedAtOnce(t *testing.T) {
	t.Parallel() // it waits
	h := newFixture(t)
	p := h.plugin("behind")
	cut := h.relay(p)
	h.write("1s", "1:Write")
	h.run()
	h.await("healthy", finds(contract.Healthy, "", ""))
	p.ResetCounters()
	h.set(p, kmsplugin.FaultHang, "encrypt")
	go func() {
		for n := int64(1); p.WaitForCalls(t.Context(), kmsplugin.CallEncrypt, n) == nil; n++ {
			cut()
		}
	}()
	h.write("1s, checks: {roundTrip: {requested: r}}", "1:Write")
	h.await("two could not be made", finds(contract.Error, contract.Unavailable, "each of the last 2 round trips"))
	if calls := p.Calls(kmsplugin.CallEncrypt); calls.Latest.Sub(calls.First) > tripRetry/2 {
		t.Errorf("it was repeated after %s", calls.Latest.Sub(calls.First))
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
