//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// verdicts is a reporter's process with one plugin, and all reports that it printed. It does not write to the API
// server.
type verdicts struct {
	*reporter
	plugin *kmsplugin.Plugin
	read   int // how many reports were judged
}

// printing starts a plugin with faults, and its reporter.
func printing(t *testing.T, faults ...string) *verdicts {
	t.Parallel() // it mostly waits
	v := &verdicts{reporter: newReporter(t)}
	v.plugin = v.reporter.plugin("1")
	v.do(faults...)
	v.checks = ", checks: {roundTrip: {interval: 1m}}" // the shortest that a configuration permits
	v.configure("", "1:Write")
	v.start()
	return v
}

// healthy is printing, and waits until the plugin is healthy.
func healthy(t *testing.T) *verdicts {
	v := printing(t)
	v.await("healthy", anything, isHealthy)
	return v
}

func (v *verdicts) start() {
	v.read = 0
	v.reporter.start("--output", "-", "--state", v.samples())
}

func (v *verdicts) samples() string { return filepath.Join(v.dir, "samples") }

// do sends commands to the plugin, as a user types them.
func (v *verdicts) do(commands ...string) {
	for _, line := range commands {
		words := strings.Fields(line)
		must.Succeed(v.t, v.plugin.Do(words[0], words[1:]...))
	}
}

// rotate returns the plugin's new key_id.
func (v *verdicts) rotate() string {
	v.do("rotate")
	return v.plugin.KeyID()
}

// next returns the new reports.
func (v *verdicts) next() (entries []contract.Entry) {
	lines := strings.Split(v.printed.Text(), "\n")
	for ; v.read < len(lines)-1; v.read++ { // the last line is not complete
		report, err := contract.DecodeMessage(lines[v.read])
		must.Succeed(v.t, err)
		entries = append(entries, report...)
	}
	return entries
}

// await waits for a report for which ok returns true. The test fails if never returns true for an earlier one.
func (v *verdicts) await(what string, never, ok func(contract.Entry) bool) {
	v.t.Helper()
	last := "none"
	wait.Eventually(v.t, waitLimit, what, func() error {
		entries := v.next()
		for i, e := range entries {
			if ok(e) {
				v.read -= len(entries) - 1 - i
				return nil
			}
			if last = show(e); never(e) {
				v.t.Fatalf("until this: %s: printed %s", what, last)
			}
		}
		select {
		case <-v.process.Ended:
			return wait.Final(fmt.Errorf("the reporter ended: %s", v.log.Text()))
		default:
		}
		return errors.New("the last report: " + last)
	})
}

// awaitCalls is await for more calls of a kind.
func (v *verdicts) awaitCalls(call kmsplugin.Call, more int64, never func(contract.Entry) bool) {
	want := v.plugin.Calls(call).Count + more
	v.await(fmt.Sprintf("%d calls to %s", want, call), never, func(contract.Entry) bool {
		return v.plugin.Calls(call).Count >= want // the report may be the result of the last one
	})
}

func show(e contract.Entry) string {
	return fmt.Sprintf("%s %s of %s, checked at %s, round trip %s, lost %q: %s", e.Status, e.Reason, e.KEKID,
		e.LastChecked.Format(time.TimeOnly), e.RoundTrip.Format(time.TimeOnly), e.Lost, e.Detail)
}

func isHealthy(e contract.Entry) bool  { return e.Status == contract.Healthy }
func notHealthy(e contract.Entry) bool { return !isHealthy(e) }
func anything(contract.Entry) bool     { return false } // as never: permits any report

// is matches a status, a reason and texts of the detail.
func is(status contract.Status, reason contract.Reason, texts ...string) func(contract.Entry) bool {
	return func(e contract.Entry) bool {
		return e.Status == status && e.Reason == reason &&
			!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e.Detail, text) })
	}
}

// healthyUnder matches a healthy report with this key, or with an earlier key if it was checked after this call. A
// report of the current second may be older.
func healthyUnder(kekID string) func(contract.Entry) bool {
	since := time.Now().Add(time.Second)
	return func(e contract.Entry) bool { return isHealthy(e) && (e.KEKID == kekID || e.LastChecked.After(since)) }
}

func TestPluginIsNotHealthyBeforeItsFirstRoundTrip(t *testing.T) {
	for name, fault := range map[string]string{
		"Encrypt hangs": "hang encrypt", "Decrypt hangs": "hang decrypt", "both are slow": "slow 500ms encrypt decrypt",
	} {
		t.Run(name, func(t *testing.T) {
			v := printing(t, fault)
			if strings.HasPrefix(fault, "hang") {
				v.await("a time-out", isHealthy, is(contract.Unhealthy, contract.Timeout))
				v.do("heal")
			} else {
				v.awaitCalls(kmsplugin.CallDecrypt, 1, isHealthy)
			}
			v.await("it is healthy", anything, func(e contract.Entry) bool {
				return isHealthy(e) && !e.RoundTrip.IsZero()
			})
		})
	}
}

func TestNewKeyIsNotHealthyBeforeARoundTripUnderIt(t *testing.T) {
	for _, call := range []string{"encrypt", "decrypt"} {
		t.Run(call+" hangs", func(t *testing.T) {
			v := healthy(t)
			v.do("hang " + call)
			key := v.rotate()
			v.await("a time-out", healthyUnder(key), is(contract.Unhealthy, contract.Timeout))
			v.do("heal")
			v.await("it is healthy", anything, healthyUnder(key))
		})
	}
}

func TestPluginThatReturnsIsNotHealthyBeforeARoundTrip(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, heal string
		reason      contract.Reason
	}{
		"a crash":             {"crash", "heal crash", contract.ConnectFailed},
		"a missing socket":    {"remove-socket; crash", "heal crash remove-socket", contract.SocketMissing},
		"Status hung":         {"slow 1h", "heal slow", contract.Timeout},
		"Status was an error": {"rpc-error Unavailable no remote", "heal rpc-error", contract.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			v := healthy(t)
			v.do(strings.Split(tt.fault, "; ")...)
			v.await("the fault", anything, is(contract.Error, tt.reason))
			v.do("hang encrypt", tt.heal)
			v.await("a time-out of Encrypt", isHealthy, is(contract.Unhealthy, contract.Timeout))
			v.do("heal")
			v.await("it is healthy", anything, isHealthy)
		})
	}
}

// A restart of the reporter does not hide that the key was replaced during it.
func TestKeyReplacedInARestartOfTheReporterIsNeverHealthy(t *testing.T) {
	v := healthy(t)
	eventually(t, "the sample is kept", func() bool {
		kept, err := os.ReadFile(v.samples())
		return err == nil && strings.Contains(string(kept), v.plugin.KeyID())
	})
	v.stop()
	v.do("replaced-key")
	v.start()
	v.await("the replaced key", isHealthy,
		is(contract.Unhealthy, contract.ReportedUnhealthy, "under the same key_id was not decrypted"))
}

// The first round trip after an error fails before it decrypts the kept sample. The next one decrypts it, even if it is
// the turn of a former key's sample.
func TestKeyReplacedInARestartIsFoundAfterAFailedRoundTrip(t *testing.T) {
	v := healthy(t)
	key := v.rotate()
	v.await("healthy under the next key", notHealthy, func(e contract.Entry) bool {
		return isHealthy(e) && e.KEKID == key
	})
	v.checks = ", checks: {roundTrip: {interval: 1m, requested: once-more}}"
	v.configure("", "1:Write")
	v.await("a round trip on request", notHealthy, func(e contract.Entry) bool {
		return isHealthy(e) && e.Requested == "once-more"
	})
	v.do("crash")
	v.await("the crash", anything, is(contract.Error, contract.ConnectFailed))
	v.do("replaced-key", "hang encrypt", "heal crash")
	v.await("a time-out of Encrypt", isHealthy, is(contract.Unhealthy, contract.Timeout))
	v.do("heal hang")
	v.await("the replaced key", isHealthy, is(contract.Unhealthy, contract.ReportedUnhealthy, "the same key_id"))
}

func TestUpgradedPluginIsHealthyAfterARestartOfTheReporter(t *testing.T) {
	v := printing(t, "version v2beta1")
	v.await("healthy", anything, isHealthy)
	v.do("crash")
	v.await("the upgrade", anything, is(contract.Error, contract.ConnectFailed))
	v.do("heal")
	v.await("the version and what to do", isHealthy,
		is(contract.Unhealthy, contract.ProtocolViolation, "v2beta1", "restart", "kube-apiserver", "reporter"))
	v.stop()
	v.start()
	v.await("healthy", notHealthy, isHealthy)
}

// The former key was no longer needed when round trips were turned on again: the stored data was migrated.
func TestRoundTripsThatAreTurnedOnAgainKnowNoFormerKey(t *testing.T) {
	v := healthy(t)
	on := v.checks
	v.awaitCalls(kmsplugin.CallStatus, 1, notHealthy) // the round trip has ended
	v.checks = ", checks: {roundTrip: {interval: 0s}}"
	v.configure("", "1:Write")
	v.awaitCalls(kmsplugin.CallStatus, 3, notHealthy)
	v.do("keep-versions 1")
	key := v.rotate()
	v.await("the new key", notHealthy, func(e contract.Entry) bool { return isHealthy(e) && e.KEKID == key })
	before := v.plugin.Calls(kmsplugin.CallDecrypt).Count
	v.checks = on
	v.configure("", "1:Write")
	v.awaitCalls(kmsplugin.CallDecrypt, before+1-v.plugin.Calls(kmsplugin.CallDecrypt).Count, notHealthy)
	v.awaitCalls(kmsplugin.CallStatus, 3, notHealthy)
	v.await("healthy", notHealthy, func(e contract.Entry) bool { return isHealthy(e) && !e.RoundTrip.IsZero() })
}
