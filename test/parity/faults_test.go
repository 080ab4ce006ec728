//go:build integration

package parity

import (
	"fmt"
	"slices"
	"strings"
)

// Roles of a provider. Each fault is compared in all roles.
const (
	// write encrypts all new objects.
	write = "write"
	// read was the writing provider earlier: it encrypted one object.
	read = "read"
	// unused is a new key in its first rollout: it has not encrypted an object yet.
	unused = "unused"
)

// opinion is the verdict of one side on a plugin. Empty means healthy.
type opinion string

// verdicts are the results of both sides for one plugin, in one role.
type verdicts struct {
	// From kube-apiserver: the health check of the process that ran when the fault began, and of the
	// next process; whether the next process reads the object of this provider, and writes with the provider.
	running, restarted, reads, writes opinion
	// asked is how often kube-apiserver called Status since the fault began.
	asked int64
	// ours is the verdict of the running reporter. next is the verdict of the next process, which starts with
	// the next kube-apiserver.
	ours, next opinion
	// early is a report of "healthy" at a time when the reporter could have known better.
	early opinion
}

// harmful reports whether kube-apiserver was affected in any way.
func (v verdicts) harmful() bool { return v.running != "" || v.cannot() != "" }

// cannot returns how the next kube-apiserver was affected.
func (v verdicts) cannot() opinion { return v.restarted + v.reads + v.writes }

// difference is a way in which the reporter may differ from kube-apiserver. No others are allowed.
type difference string

const (
	none difference = ""
	// No data exists that could be lost, but the next object would be lost.
	noData difference = "unhealthy, although kube-apiserver has nothing to decrypt with it yet"
	// kube-apiserver accepts gRPC's limits of 4 and 16 MiB, for which gRPC may need a hundred times as
	// much memory. The reporter has little memory, and no plugin may fill it.
	tooLarge difference = "unhealthy, since an answer is over 256 KiB, or headers over 64 KiB"
)

// fault is one row of the comparison: how its plugin is made unhealthy, and the expected outcome.
type fault struct {
	name string
	// start has the faults that are active before kube-apiserver's first call.
	start []string
	// steps make the plugin unhealthy, in this order. A step is a command or fault of package kmsplugin, as a user
	// types it, a wire with a mode, or pause, which waits until the reporter has seen the earlier steps.
	steps []string
	// later are steps between the running processes and the next ones.
	later []string
	// harmless says that the fault does not affect kube-apiserver. The comparison does not need it, but without it a
	// fault that has lost its effect would go unnoticed.
	harmless bool
	// decrypt marks a fault of Decrypt only, which is harmless in the role unused.
	decrypt bool
	// differs is the difference that this row must show.
	differs difference
	// turns marks a plugin whose answers differ from call to call. It counts as unhealthy if one of maxTurns
	// answers was bad.
	turns bool
	// loses marks a former key that the KMS dropped. Only kube-apiserver knows whether stored data needs it. So for the
	// reporter the plugin is healthy, and its entry names the key as lost.
	loses bool
}

// pause is a step that waits until the reporter has seen the steps before it.
const pause = "pause"

// parts returns the steps before and after a pause. Without a pause, after has all steps.
func (f fault) parts() (before, after []string) {
	if i := slices.Index(f.steps, pause); i >= 0 {
		return f.steps[:i], f.steps[i+1:]
	}
	return nil, f.steps
}

// tripsAtOnce reports whether the last step causes a round trip at once. After other steps, the next regular round trip
// finds a fault of Encrypt or Decrypt.
func (f fault) tripsAtOnce() bool {
	return len(f.steps) > 0 && slices.Contains([]string{"rotate", "heal crash"}, f.steps[len(f.steps)-1])
}

// healsLate reports whether the reporter finds the plugin healthy only much later. It remembers the version. It retries
// a call that ended the plugin with a growing backoff. And for it, the exchange back is one more change of the key,
// after which data of the former key is not decrypted.
func (f fault) healsLate() bool {
	commands := strings.Join(slices.Concat(f.start, f.steps), " ")
	return strings.Contains(commands, "version ") || strings.Contains(commands, "former-decrypt") ||
		strings.Contains(commands, "exchange")
}

// expected returns the expected outcome in a role.
func (f fault) expected(role string) (harmless bool, differs difference) {
	if f.decrypt && role == unused {
		return true, noData
	}
	return f.harmless, f.differs
}

// compare returns a difference from the row, or "". An allowed difference that does not occur is an error too.
func (f fault) compare(role string, v verdicts) string {
	harmless, differs := f.expected(role)
	agrees := v.harmful() == (v.ours != "")
	if f.later != nil { // the running processes ended before the fault
		agrees = v.harmful() == (v.next != "")
	}
	switch {
	case v.cannot() != "" && v.early != "" && !f.turns && !f.loses:
		return fmt.Sprintf("the reporter reported %s, but kube-apiserver cannot use it: %s", v.early, v.cannot())
	case (v.cannot() != "") != (v.next != "") && !f.turns && differs != noData && differs != tooLarge:
		return fmt.Sprintf("the reporter's next process reports %q, the next kube-apiserver %q", v.next, v.cannot())
	// A failure is a new answer, since the plugin was healthy before. "ok" may be a cached one.
	case v.running == "" && v.asked == 0:
		return "kube-apiserver has not asked the plugin since the fault, so its answer is an old one"
	case v.harmful() == harmless:
		return fmt.Sprintf("the fault has lost its effect on kube-apiserver, or its rules have changed: %+v", v)
	case agrees != (differs == none):
		return fmt.Sprintf("the reporter reports %q, kube-apiserver %+v; the known difference is %q", v.ours, v, differs)
	}
	return ""
}

// faults are the rows of the comparison.
var faults = []fault{
	{name: "healthy", harmless: true},

	// The answer.
	{name: "healthz is another text", steps: []string{"unhealthy vault is sealed"}},
	{name: "healthz by turns", steps: []string{"wire healthz-by-turns"}, turns: true},
	{name: "healthz of 70 KiB", steps: []string{"unhealthy " + strings.Repeat("x", 70<<10)}},
	{name: "60 KiB of padding", steps: []string{"padded-answer 61440"}, harmless: true},
	{name: "200 KiB of padding", steps: []string{"padded-answer 204800"}, harmless: true},
	{name: "300 KiB of padding", steps: []string{"padded-answer 307200"}, harmless: true, differs: tooLarge},
	{name: "5 MiB of padding", steps: []string{"padded-answer 5242880"}},
	{name: "version v3", steps: []string{"version v3"}},
	{name: "version v2beta1 from the start", start: []string{"version v2beta1"}, harmless: true},
	{name: "version v2beta1 after v2", steps: []string{"version v2beta1"}},
	{name: "version v2 after v2beta1", start: []string{"version v2beta1"}, steps: []string{"heal"}},
	{name: "key_id empty", steps: []string{"status-key-id"}},
	{name: "key_id of 1024 bytes", steps: []string{"key-id " + strings.Repeat("k", 1024)}, harmless: true},
	{name: "key_id of 1025 bytes", steps: []string{"key-id " + strings.Repeat("k", 1025)}},
	{name: "key_id of another name", steps: []string{"key-id some-other-key"}, harmless: true},
	{name: "key_id by turns, Encrypt names one", steps: []string{"wire key-id-by-turns"}, turns: true},
	{name: "key rotated", steps: []string{"rotate"}, harmless: true},
	{name: "key rotated, Status lags", steps: []string{"lagging-status", "rotate"}, harmless: true},
	{name: "a header of 100 KiB", steps: []string{"huge-headers 102400"}, harmless: true, differs: tooLarge},
	{name: "a header of 20 KiB", steps: []string{"huge-headers"}, harmless: true},
	{name: "an error text of 20 KiB", steps: []string{"rpc-error Internal " + strings.Repeat("x", 20<<10)}},
	{name: "answers compressed with gzip", steps: []string{"wire gzip"}, harmless: true},

	// No answer.
	{name: "Status fails: Internal", steps: []string{"rpc-error Internal the remote key is disabled"}},
	{name: "Status fails: Unavailable", steps: []string{"rpc-error Unavailable no remote"}},
	{name: "Status fails: PermissionDenied", steps: []string{"rpc-error PermissionDenied no right"}},
	{name: "Status fails: DeadlineExceeded", steps: []string{"rpc-error DeadlineExceeded remote too slow"}},
	{name: "Status fails: Unimplemented", steps: []string{"rpc-error Unimplemented not a v2 plugin"}},
	{name: "Status hangs", steps: []string{"hang"}},
	{name: "Status after 300ms, timeout 1s", steps: []string{"slow 300ms"}, harmless: true},
	{name: "each call after 400ms, timeout 1s", steps: []string{"slow 400ms all"}, harmless: true},
	{name: "Status after 2s, timeout 1s", steps: []string{"slow 2s"}},
	{name: "socket removed, connection open", steps: []string{"remove-socket"}},
	{name: "socket removed, connection lost", steps: []string{"remove-socket", "crash"}},
	{name: "crash", steps: []string{"crash"}},
	{name: "crash and return", steps: []string{"crash", "heal"}, harmless: true},

	// The connection.
	{name: "HTTP/1.1 on the socket", steps: []string{"wire http1"}},
	{name: "TLS on the socket", steps: []string{"wire tls"}},
	{name: "random bytes on the socket", steps: []string{"wire random"}},
	{name: "GOAWAY after each call", steps: []string{"wire goaway"}, harmless: true},
	{name: "2000 SETTINGS frames before each answer", steps: []string{"wire settings"}, harmless: true},
	{name: "connection cut in each Encrypt", steps: []string{"wire cut-Encrypt"}},
	{name: "connection cut in each Decrypt", steps: []string{"wire cut-Decrypt"}, decrypt: true},

	// Encrypt and Decrypt. A change of the key id makes kube-apiserver encrypt.
	{name: "encrypt refused", steps: []string{"refuse-encrypt"}},
	{name: "encrypt refused, key id changed", steps: []string{"refuse-encrypt", "rotate"}},
	{name: "encrypt hangs", steps: []string{"hang encrypt"}},
	{name: "encrypt hangs, key id changed", steps: []string{"hang encrypt", "rotate"}},
	{name: "encrypt names another key", steps: []string{"encrypt-key-id"}},
	{name: "encrypt names another key, key id changed", steps: []string{"encrypt-key-id", "rotate"}},
	{name: "Status alone has a new key_id", steps: []string{"status-key-id another"}},
	{name: "decrypt refused", steps: []string{"refuse-decrypt"}, decrypt: true},
	{name: "decrypt hangs", steps: []string{"hang decrypt"}, decrypt: true},
	{name: "decrypt refused, key id changed", steps: []string{"refuse-decrypt", "rotate"}, decrypt: true},
	{name: "decrypt answers other bytes", steps: []string{"wrong-decrypt"}, decrypt: true},
	{name: "decrypt answers a byte less", steps: []string{"short-decrypt"}, decrypt: true},
	{name: "key replaced under its name", steps: []string{"replaced-key"}, decrypt: true},
	{name: "key replaced in the plugin's restart", decrypt: true,
		steps: []string{"crash", pause, "replaced-key", "heal crash"}},
	{name: "key replaced in the reporter's restart", later: []string{"replaced-key"}, decrypt: true},
	{name: "key rotated twice, the KMS keeps two", decrypt: true, loses: true,
		steps: []string{"keep-versions 2", "rotate", pause, "rotate"}},
	{name: "the process ends at each Encrypt, key id changed", steps: []string{"ends-at encrypt 3s", "rotate"}},
	{name: "the process ends at a former key, key id changed", steps: []string{"ends-at former-decrypt 500ms", "rotate"},
		decrypt: true},
	{name: "decrypt other bytes, key id changed", steps: []string{"wrong-decrypt", "rotate"}, decrypt: true},
	{name: "plugins exchange their sockets", steps: []string{"wire exchange"}, decrypt: true},
}
