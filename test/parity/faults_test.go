package parity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

// opinion is what one side reports of a plugin: empty if it is healthy.
type opinion string

// verdicts are the results of all sides for one plugin.
type verdicts struct {
	kube opinion
	// asked is how often kube-apiserver asked the plugin since its fault.
	asked int64
	// status is ours by Status alone, roundTrip ours with that check too.
	status, roundTrip opinion
}

// difference is a way in which we may differ from kube-apiserver. The list is closed: any
// other fails. Its cache, which keeps a good answer for 20 s, is waited out.
type difference string

const (
	none difference = "same"
	// kube-apiserver encrypts only to get a new seed, and never decrypts. A round trip does
	// both, on a clock of its own.
	notTried difference = "Encrypt and Decrypt are tried by us"
	// kube-apiserver takes gRPC's 4 and 16 MiB, of which gRPC makes up to a hundred times as
	// much in memory. The reporter is small, and no plugin may fill its memory.
	tooLarge difference = "an answer over 256 KiB, or headers over 64 KiB, is an error to us alone"
)

// shows returns whether verdicts differ in just this way.
func (d difference) shows(v verdicts) bool {
	kube, status, roundTrip := v.kube == "", v.status == "", v.roundTrip == ""
	switch d {
	case notTried:
		return status && !roundTrip
	case tooLarge:
		return kube && !status && !roundTrip
	default:
		return status == kube && roundTrip == kube
	}
}

// compare returns what is wrong: all that is not as the row has it, also an allowed difference
// that does not show, since a round trip is there to find those faults.
func (f fault) compare(v verdicts) string {
	switch {
	// A failure is new since the plugin was healthy; "ok" may be an old answer.
	case v.kube == "" && v.asked == 0:
		return "kube-apiserver has not asked the plugin since the fault, so its answer is an old one"
	case (v.kube == "") == f.unhealthy:
		return fmt.Sprintf("kube-apiserver reports %q: the fault has lost its effect, or the rules have changed", v.kube)
	case !f.differs.shows(v):
		return fmt.Sprintf("kube-apiserver reports %q, we %q, and with a round trip %q: not %q",
			v.kube, v.status, v.roundTrip, f.differs)
	}
	return ""
}

// fault is one row of the comparison: how its plugin is made unhealthy, and what is
// known of the outcome.
type fault struct {
	name string
	// start holds from before kube-apiserver's first call.
	start []string
	// steps make the plugin unhealthy, in order. They are commands and faults of
	// package kmsplugin, as one would type them; heal ends those of start too.
	steps []string
	// unhealthy is what kube-apiserver 1.36 makes of it. The comparison does not need
	// it; it keeps a fault that has lost its effect from agreeing by accident.
	unhealthy bool
	// differs is the difference that this row must show; empty as none.
	differs difference
	// turns marks a plugin whose answers differ from call to call. It counts as
	// unhealthy if one of maxTurns answers made it so.
	turns bool
}

// faults is the whole comparison. The first plugin is the one that
// kube-apiserver writes with, so it stays healthy.
var faults = []fault{
	{name: "healthy"},

	// The answer.
	{name: "healthz is another text", steps: []string{"unhealthy vault is sealed"}, unhealthy: true},
	{name: "healthz of 70 KiB", steps: []string{"huge-answer"}, unhealthy: true},
	{name: "60 KiB of padding", steps: []string{"padded-answer 61440"}},
	{name: "200 KiB of padding", steps: []string{"padded-answer 204800"}},
	{name: "300 KiB of padding", steps: []string{"padded-answer 307200"}, differs: tooLarge},
	{name: "5 MiB of padding", steps: []string{"padded-answer 5242880"}, unhealthy: true},
	{name: "version v3", steps: []string{"wrong-version v3"}, unhealthy: true},
	{name: "version v2beta1 from the start", start: []string{"v2beta1"}},
	{name: "version v2beta1 after v2", steps: []string{"v2beta1"}, unhealthy: true},
	{name: "version v2 after v2beta1", start: []string{"v2beta1"}, steps: []string{"heal"}, unhealthy: true},
	{name: "version by turns", steps: []string{"changing-version"}, unhealthy: true, turns: true},
	{name: "key_id empty", steps: []string{"empty-key-id"}, unhealthy: true},
	{name: "key_id of 1024 bytes", steps: []string{"key-id " + strings.Repeat("k", 1024)}},
	{name: "key_id of 1025 bytes", steps: []string{"long-key-id 1025"}, unhealthy: true},
	{name: "key_id of another name", steps: []string{"key-id some-other-key"}},
	{name: "key rotated", steps: []string{"rotate"}},
	{name: "key rotated, Status lags", steps: []string{"lagging-status", "rotate"}},
	{name: "gRPC health is NOT_SERVING", steps: []string{"not-serving"}}, // which neither side asks by default

	{name: "a header of 100 KiB", steps: []string{"huge-headers 102400"}, differs: tooLarge},
	{name: "a header of 20 KiB", steps: []string{"huge-headers"}},
	{name: "an error text of 20 KiB", steps: []string{"rpc-error Internal " + strings.Repeat("x", 20<<10)}, unhealthy: true},

	// No answer.
	{name: "Status fails: Internal", steps: []string{"rpc-error Internal the remote key is disabled"}, unhealthy: true},
	{name: "Status fails: Unavailable", steps: []string{"rpc-error Unavailable no remote"}, unhealthy: true},
	{name: "Status fails: PermissionDenied", steps: []string{"rpc-error PermissionDenied no right"}, unhealthy: true},
	{name: "Status fails: DeadlineExceeded", steps: []string{"rpc-error DeadlineExceeded remote too slow"}, unhealthy: true},
	{name: "Status fails: Unimplemented", steps: []string{"rpc-error Unimplemented not a v2 plugin"}, unhealthy: true},
	{name: "Status hangs", steps: []string{"hang"}, unhealthy: true},
	{name: "Status after 1s, timeout 3s", steps: []string{"slow 1s"}},
	{name: "each call after 2s, timeout 3s", steps: []string{"slow 2s all"}},
	{name: "Status after 5s, timeout 3s", steps: []string{"slow 5s"}, unhealthy: true},
	{name: "socket removed, connection open", steps: []string{"remove-socket"}},
	{name: "socket removed, connection lost", steps: []string{"crash", "remove-socket"}, unhealthy: true},
	{name: "crash", steps: []string{"crash"}, unhealthy: true},
	{name: "crash and return", steps: []string{"crash", "return"}},

	// Encrypt and Decrypt. A change of the key id makes kube-apiserver encrypt.
	{name: "encrypt refused", steps: []string{"refuse-encrypt"}, differs: notTried},
	{name: "encrypt refused, key id changed", steps: []string{"refuse-encrypt", "rotate"}, unhealthy: true, differs: notTried},
	{name: "encrypt hangs, key id changed", steps: []string{"hang encrypt", "rotate"}, unhealthy: true, differs: notTried},
	{name: "encrypt names another key", steps: []string{"encrypt-key-id"}, differs: notTried},
	{name: "encrypt names another key, key id changed", steps: []string{"encrypt-key-id", "rotate"}, unhealthy: true, differs: notTried},
	{name: "Status alone has a new key_id", steps: []string{"long-key-id 1024"}, unhealthy: true, differs: notTried},
	{name: "decrypt refused", steps: []string{"refuse-decrypt"}, differs: notTried},
	{name: "decrypt refused, key id changed", steps: []string{"refuse-decrypt", "rotate"}, differs: notTried},
	{name: "decrypt answers other bytes", steps: []string{"wrong-decrypt"}, differs: notTried},
	{name: "decrypt answers a byte less", steps: []string{"short-decrypt"}, differs: notTried},
	{name: "key replaced under its name", steps: []string{"replaced-key"}, differs: notTried},
	{name: "decrypt other bytes, key id changed", steps: []string{"wrong-decrypt", "rotate"}, differs: notTried},
}

func TestOnlyListedDifferencesAgree(t *testing.T) {
	const healthy, fails = opinion(""), opinion("failed: x")
	for _, c := range []struct {
		name      string
		unhealthy bool
		differs   difference
		v         verdicts
		agrees    bool
	}{
		{"all healthy", false, none, verdicts{healthy, 1, healthy, healthy}, true},
		{"all unhealthy", true, none, verdicts{fails, 1, fails, fails}, true},
		{"unhealthy, and the plugin cannot be asked", true, none, verdicts{fails, 0, fails, fails}, true},
		{"healthy, by an answer from before the fault", false, none, verdicts{healthy, 0, healthy, healthy}, false},
		{"we alone call it unhealthy", false, none, verdicts{healthy, 1, fails, fails}, false},
		{"we alone call it healthy", true, none, verdicts{fails, 1, healthy, healthy}, false},
		{"a round trip alone calls it unhealthy", false, none, verdicts{healthy, 1, healthy, fails}, false},
		{"a round trip alone calls it healthy", true, none, verdicts{fails, 1, fails, healthy}, false},
		{"kube-apiserver does not see the fault any more", true, none, verdicts{healthy, 1, healthy, healthy}, false},
		{"kube-apiserver sees what was no fault", false, none, verdicts{fails, 1, fails, fails}, false},

		{"encrypt is not tried by kube-apiserver", false, notTried, verdicts{healthy, 1, healthy, fails}, true},
		{"encrypt is tried by kube-apiserver", true, notTried, verdicts{fails, 1, healthy, fails}, true},
		{"encrypt is not tried by anyone", false, notTried, verdicts{healthy, 1, healthy, healthy}, false},
		{"encrypt spoils our Status", false, notTried, verdicts{healthy, 1, fails, fails}, false},

		{"too large for us", false, tooLarge, verdicts{healthy, 1, fails, fails}, true},
		{"too large for both", true, tooLarge, verdicts{fails, 1, fails, fails}, false},
		{"too large for none", false, tooLarge, verdicts{healthy, 1, healthy, healthy}, false},
	} {
		if problem := (fault{unhealthy: c.unhealthy, differs: c.differs}).compare(c.v); (problem == "") != c.agrees {
			t.Errorf("%s: got %q", c.name, problem)
		}
	}
}

// A fault that the development plugin learns must be compared too.
func TestEveryFaultOfThePluginIsCompared(t *testing.T) {
	var compared []string
	for _, f := range faults {
		for _, line := range slices.Concat(f.start, f.steps) {
			compared = append(compared, strings.Fields(line)[0])
		}
	}
	for _, kind := range kmsplugin.Faults() {
		if !slices.Contains(compared, kind.Name) {
			t.Errorf("no row has the plugin's fault %q", kind.Name)
		}
	}
}
