//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// verdicts is a reporter's process with one plugin, and all reports that it printed. It does not write to the API
// server.
type verdicts struct {
	*reporter
	plugin  *kmsplugin.Plugin
	printed *program.Output
	read    int // how many reports were judged
}

// tripsEachMinute requests round trips at the shortest interval that a configuration permits.
const tripsEachMinute = "{roundTrip: {interval: 1m}}"

// printing starts a plugin with faults, and its reporter.
func printing(t *testing.T, faults ...string) *verdicts {
	t.Helper()
	t.Parallel() // it mostly waits
	v := &verdicts{reporter: newReporter(t)}
	v.plugin = v.reporter.plugin("1")
	v.do(faults...)
	v.checks(tripsEachMinute)
	v.start()
	return v
}

func (v *verdicts) start() {
	v.t.Helper()
	v.printed, v.read = &program.Output{}, 0
	cmd := exec.Command(binary, "--config", v.file, "--output", "-", "--state", v.samples())
	cmd.Env, cmd.Stdout, cmd.Stderr = os.Environ(), v.printed, &v.log
	v.process = program.Start(v.t, cmd)
	v.t.Cleanup(v.stop)
}

func (v *verdicts) samples() string { return filepath.Join(v.dir, "samples") }

// checks writes the configuration file, with these checks in addition to Status.
func (v *verdicts) checks(checks string) {
	v.t.Helper()
	v.write(fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: 1s, checks: %s}
plugins: [{endpoint: '%s', role: Write}]
`, checks, v.endpoint("1")))
}

// do sends commands to the plugin, as a user types them.
func (v *verdicts) do(commands ...string) {
	v.t.Helper()
	for _, line := range commands {
		words := strings.Fields(line)
		if err := v.plugin.Do(words[0], words[1:]...); err != nil {
			v.t.Fatal(err)
		}
	}
}

// rotate returns the plugin's new key_id.
func (v *verdicts) rotate() string {
	v.t.Helper()
	v.do("rotate")
	return v.plugin.KeyID()
}

// next returns the new reports.
func (v *verdicts) next() (entries []contract.Entry) {
	v.t.Helper()
	lines := strings.Split(v.printed.Text(), "\n")
	for ; v.read < len(lines)-1; v.read++ { // the last line is not complete
		report, err := contract.DecodeMessage(lines[v.read])
		if err != nil {
			v.t.Fatal(err)
		}
		entries = append(entries, report...)
	}
	return entries
}

// await waits for a report for which ok returns true. The test fails if never returns true for that report or an
// earlier one.
func (v *verdicts) await(limit time.Duration, what string, never, ok func(contract.Entry) bool) {
	v.t.Helper()
	last := "none"
	wait.Eventually(v.t, limit, what, func() error {
		entries := v.next()
		for i, e := range entries {
			last = show(e)
			if never(e) {
				v.t.Fatalf("until this: %s: printed %s", what, last)
			}
			if ok(e) {
				v.read -= len(entries) - 1 - i
				return nil
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

// awaitCalls waits for more calls of a kind. The test fails if never returns true for a report meanwhile.
func (v *verdicts) awaitCalls(call kmsplugin.Call, more int64, never func(contract.Entry) bool) {
	v.t.Helper()
	want := v.plugin.Calls(call).Count + more
	wait.Eventually(v.t, waitLimit, fmt.Sprintf("%d calls to %s", want, call), func() error {
		from := v.read
		entries := v.next()
		n := v.plugin.Calls(call).Count
		if n >= want {
			v.read = from // these reports may be later than the last call
			return nil
		}
		for _, e := range entries {
			if never(e) {
				v.t.Fatalf("with %d calls to %s, of %d to wait for: printed %s", n, call, want, show(e))
			}
		}
		return fmt.Errorf("%d calls", n)
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
				v.await(waitLimit, "a time-out", isHealthy, is(contract.Unhealthy, contract.Timeout))
				v.do("heal")
			} else {
				v.awaitCalls(kmsplugin.CallDecrypt, 1, isHealthy)
			}
			v.await(waitLimit, "it is healthy", anything, func(e contract.Entry) bool {
				return isHealthy(e) && !e.RoundTrip.IsZero()
			})
		})
	}
}

func TestNewKeyIsNotHealthyBeforeARoundTripUnderIt(t *testing.T) {
	for _, call := range []string{"encrypt", "decrypt"} {
		t.Run(call+" hangs", func(t *testing.T) {
			v := printing(t)
			v.await(waitLimit, "healthy", anything, isHealthy)
			v.do("hang " + call)
			key := v.rotate()
			v.await(waitLimit, "a time-out", healthyUnder(key), is(contract.Unhealthy, contract.Timeout))
			v.do("heal")
			v.await(waitLimit, "it is healthy", anything, healthyUnder(key))
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
			v := printing(t)
			v.await(waitLimit, "healthy", anything, isHealthy)
			v.do(strings.Split(tt.fault, "; ")...)
			v.await(waitLimit, "the fault", anything, is(contract.Error, tt.reason))
			v.do("hang encrypt", tt.heal)
			v.await(waitLimit, "a time-out of Encrypt", isHealthy, is(contract.Unhealthy, contract.Timeout))
			v.do("heal")
			v.await(waitLimit, "it is healthy", anything, isHealthy)
		})
	}
}

// Neither a restart of the plugin nor one of the reporter hides that the key was replaced during it.
func TestKeyReplacedInARestartIsNeverHealthy(t *testing.T) {
	lost := is(contract.Unhealthy, contract.ReportedUnhealthy, "under the same key_id was not decrypted")
	t.Run("of the plugin", func(t *testing.T) {
		v := printing(t)
		v.await(waitLimit, "healthy", anything, isHealthy)
		v.do("crash")
		v.await(waitLimit, "the crash", anything, is(contract.Error, contract.ConnectFailed))
		v.do("replaced-key", "heal crash")
		v.await(waitLimit, "the replaced key", isHealthy, lost)
	})
	t.Run("of the reporter", func(t *testing.T) {
		v := printing(t)
		v.await(waitLimit, "healthy", anything, isHealthy)
		eventually(t, "the sample is kept", func() bool {
			kept, err := os.ReadFile(v.samples())
			return err == nil && strings.Contains(string(kept), v.plugin.KeyID())
		})
		v.stop()
		v.do("replaced-key")
		v.start()
		v.await(waitLimit, "the replaced key", isHealthy, lost)
	})
}

// The first round trip after an error fails before it decrypts the kept sample. The next one decrypts it, even if it is
// the turn of a former key's sample.
func TestKeyReplacedInARestartIsFoundAfterAFailedRoundTrip(t *testing.T) {
	v := printing(t)
	v.await(waitLimit, "healthy", anything, isHealthy)
	key := v.rotate()
	v.await(waitLimit, "healthy under the next key", notHealthy, func(e contract.Entry) bool { return e.KEKID == key })
	v.checks("{roundTrip: {interval: 1m, requested: once-more}}")
	v.await(waitLimit, "a round trip on request", notHealthy, func(e contract.Entry) bool { return e.Requested == "once-more" })
	v.do("crash")
	v.await(waitLimit, "the crash", anything, is(contract.Error, contract.ConnectFailed))
	v.do("replaced-key", "hang encrypt", "heal crash")
	v.await(waitLimit, "a time-out of Encrypt", isHealthy, is(contract.Unhealthy, contract.Timeout))
	v.do("heal hang")
	v.await(waitLimit, "the replaced key", isHealthy, is(contract.Unhealthy, contract.ReportedUnhealthy, "the same key_id"))
}

// The process restarts only after two probes, so the next probe finds no listener.
func TestPluginThatEndsAtEachEncryptAndReturnsLateIsNeverHealthy(t *testing.T) {
	v := printing(t)
	v.await(waitLimit, "healthy", anything, isHealthy)
	v.do("ends-at encrypt 2500ms")
	key := v.rotate()
	v.awaitCalls(kmsplugin.CallEncrypt, 3, healthyUnder(key))
	v.await(waitLimit, "its error", healthyUnder(key), func(e contract.Entry) bool { return e.Status == contract.Error })
	v.do("heal")
	v.await(2*waitLimit, "it is healthy", anything, healthyUnder(key))
}

// Some plugins panic when they decrypt data of another key. The next retries are after 2, 4 … minutes.
func TestPluginThatEndsAtAFormerKeyIsAskedAgainAfterAMinute(t *testing.T) {
	v := printing(t)
	v.await(waitLimit, "healthy", anything, isHealthy)
	former := v.plugin.KeyID()
	v.do("ends-at former-decrypt 2s")
	began := time.Now()
	key := v.rotate()
	ends := func(n int64) {
		wait.Eventually(t, 2*waitLimit, fmt.Sprintf("the process ends %d times", n), func() error {
			if got := v.plugin.State().Ends; got < n {
				return fmt.Errorf("%d times", got)
			}
			return nil
		})
	}
	ends(1)
	v.await(waitLimit, "its cause", healthyUnder(key), func(e contract.Entry) bool {
		return notHealthy(e) && strings.Contains(e.Detail, former) && strings.Contains(e.Detail, "end")
	})
	ends(2)
	if took := time.Since(began); took < time.Minute {
		t.Errorf("asked again for what ends it after %s", took)
	}
	v.await(waitLimit, "its cause, again", healthyUnder(key), func(e contract.Entry) bool {
		return notHealthy(e) && strings.Contains(e.Detail, former)
	})
}

// An administrator requests a round trip, which tries each kept sample, before a change that empties the caches of
// kube-apiserver.
func TestFormerKeysThatTheKMSDroppedAreLostAfterARequest(t *testing.T) {
	v := printing(t)
	v.await(waitLimit, "healthy", anything, isHealthy)
	keys := []string{v.plugin.KeyID()}
	for len(keys) < 4 {
		key := v.rotate()
		v.await(waitLimit, "healthy under the next key", notHealthy, func(e contract.Entry) bool {
			return isHealthy(e) && e.KEKID == key
		})
		keys = append(keys, key)
		time.Sleep(3 * time.Second) // a key_id that changes twice in one interval is another fault
	}
	v.do("keep-versions 2")
	v.checks("{roundTrip: {interval: 1m, requested: r}}")
	v.await(waitLimit, "the request is fulfilled", notHealthy, func(e contract.Entry) bool {
		if e.Requested == "r" && !slices.Equal(e.Lost, keys[:2]) {
			t.Errorf("lost is %q, not %q", e.Lost, keys[:2])
		}
		return e.Requested == "r"
	})
	v.do("heal")
}

// kube-apiserver also accepts only the first valid version that it saw, until it is restarted.
func TestUpgradedPluginIsHealthyAfterARestartOfTheReporter(t *testing.T) {
	v := printing(t, "version v2beta1")
	v.await(waitLimit, "healthy", anything, isHealthy)
	v.do("crash")
	v.await(waitLimit, "the upgrade", anything, is(contract.Error, contract.ConnectFailed))
	v.do("heal")
	v.await(waitLimit, "the version and what to do", isHealthy,
		is(contract.Unhealthy, contract.ProtocolViolation, "v2beta1", "restart", "kube-apiserver", "reporter"))
	v.stop()
	v.start()
	v.await(waitLimit, "healthy", notHealthy, isHealthy)
}

// The former key was no longer needed when round trips were turned on again: the stored data was migrated.
func TestRoundTripsThatAreTurnedOnAgainKnowNoFormerKey(t *testing.T) {
	v := printing(t)
	v.await(waitLimit, "healthy", anything, isHealthy)
	v.awaitCalls(kmsplugin.CallStatus, 1, notHealthy) // the round trip has ended
	v.checks("{roundTrip: {interval: 0s}}")
	v.awaitCalls(kmsplugin.CallStatus, 3, notHealthy)
	v.do("keep-versions 1")
	key := v.rotate()
	v.await(waitLimit, "the new key", notHealthy, func(e contract.Entry) bool { return e.KEKID == key })
	before := v.plugin.Calls(kmsplugin.CallDecrypt).Count
	v.checks(tripsEachMinute)
	v.awaitCalls(kmsplugin.CallDecrypt, before+1-v.plugin.Calls(kmsplugin.CallDecrypt).Count, notHealthy)
	v.awaitCalls(kmsplugin.CallStatus, 3, notHealthy)
	v.await(waitLimit, "healthy", notHealthy, func(e contract.Entry) bool { return isHealthy(e) && !e.RoundTrip.IsZero() })
}

func TestEncryptThatNamesAnotherKeyBreaksTheAPI(t *testing.T) {
	v := printing(t, "encrypt-key-id another-key")
	v.await(waitLimit, "the two key_ids", func(e contract.Entry) bool { return e.Reason == contract.RoundTripMismatch },
		is(contract.Unhealthy, contract.ProtocolViolation, "another-key", v.plugin.KeyID()))
}

func TestVerdictOnAFormerKeyIsNotThatOfTheNextOne(t *testing.T) {
	v := printing(t, "refuse-encrypt PermissionDenied cause-of-the-former")
	v.await(waitLimit, "the cause", anything, is(contract.Unhealthy, "PermissionDenied", "cause-of-the-former"))
	v.do("ends-at encrypt 2500ms")
	key := v.rotate()
	v.awaitCalls(kmsplugin.CallStatus, 4, func(e contract.Entry) bool {
		return e.KEKID == key && (isHealthy(e) || strings.Contains(e.Detail, "cause-of-the-former"))
	})
}
