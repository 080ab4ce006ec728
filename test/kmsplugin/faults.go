package kmsplugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// The names of the faults that programs set. [Faults] describes them.
const (
	FaultUnhealthy     = "unhealthy"
	FaultRPCError      = "rpc-error"
	FaultHang          = "hang"
	FaultKeyID         = "key-id"
	FaultRefuseEncrypt = "refuse-encrypt"
	FaultRefuseDecrypt = "refuse-decrypt"
	FaultReplacedKey   = "replaced-key"
	FaultRemoveSocket  = "remove-socket"
	FaultCrash         = "crash"
	FaultEndsAt        = "ends-at"
	FaultKeepVersions  = "keep-versions"
)

// Fault is a fault as a user writes it: the name of a [FaultKind] and its arguments. The last arguments may be omitted.
type Fault struct {
	Name string   `json:"name"`
	Args []string `json:"args,omitempty"`
}

// String returns the fault as [ParseFault] reads it.
func (f Fault) String() string { return strings.Join(append([]string{f.Name}, f.Args...), " ") }

// ParseFault reads a fault from one line: the name, then its arguments.
func ParseFault(line string) (Fault, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return Fault{}, errors.New("no fault named")
	}
	f := Fault{Name: words[0], Args: words[1:]}
	_, err := compile([]Fault{f})
	return f, err
}

// FaultKind is a row of [Faults].
type FaultKind struct {
	Name string
	// Usage lists the arguments. Default has the arguments that apply if none are given.
	Usage, Default string
	// What describes the effect, in one line.
	What string

	// apply sets fields of b. args are the arguments, joined with spaces. Nil: only the name in b.on is used.
	apply func(b *behaviour, args string) error
}

// behaviour is the combined effect of the active faults. Each change of the faults creates a new one.
type behaviour struct {
	on      map[string]bool // faults by name
	delay   map[Call]time.Duration
	refused map[Call]*status.Status

	healthz, version          string
	padding, headers          int    // bytes
	endsAt                    string // a call, or formerDecrypt
	restart                   time.Duration
	versions                  int     // how many keys the KMS keeps; 0: all
	statusKeyID, encryptKeyID *string // nil: the ID of the key
}

// compile returns the behaviour with these faults.
func compile(faults []Fault) (*behaviour, error) {
	b := &behaviour{
		on: map[string]bool{}, delay: map[Call]time.Duration{}, refused: map[Call]*status.Status{},
		healthz: "ok", version: "v2", // the values that kube-apiserver requires
	}
	for _, f := range faults {
		i := slices.IndexFunc(Faults, func(k FaultKind) bool { return k.Name == f.Name })
		if i < 0 {
			return nil, fmt.Errorf("no command or fault is called %q", f.Name)
		}
		b.on[f.Name] = true
		kind, err := Faults[i], error(nil)
		args := cmp.Or(strings.Join(f.Args, " "), kind.Default)
		if args != "" && kind.Usage == "" {
			err = fmt.Errorf("takes no arguments, got %q", args)
		} else if kind.apply != nil {
			err = kind.apply(b, args)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return b, nil
}

// Faults lists the faults. Several may be active. If two set the same value, the later one wins.
var Faults = []FaultKind{
	{FaultUnhealthy, "[TEXT]", "unhealthy", `Status answers healthz=TEXT instead of "ok"`,
		with(func(b *behaviour, text string) { b.healthz = text })},
	{FaultRPCError, "[CODE [TEXT]]", "Internal injected error",
		"Status fails with a gRPC code (Internal, Unavailable, PermissionDenied, ...) and TEXT", refuse(CallStatus)},
	{FaultHang, "[CALLS]", "status",
		"Status (or CALLS: status encrypt decrypt check, all) gets no answer until healed or the caller gives up",
		func(b *behaviour, calls string) error { return slow(b, "9999h "+calls) }},
	{"slow", "[DURATION [CALLS]]", "300ms",
		"Status (or CALLS) is answered DURATION (2s, 300ms) after it came in", slow},
	{"version", "[TEXT]", "v3", "Status answers version=TEXT",
		with(func(b *behaviour, text string) { b.version = text })},
	{"status-key-id", "[TEXT]", "", "Status alone answers key_id=TEXT, an empty one by default",
		with(func(b *behaviour, text string) { b.statusKeyID = &text })},
	{FaultKeyID, "[TEXT]", "some-other-key",
		"Status and Encrypt answer key_id=TEXT, as if the remote key were called so",
		with(func(b *behaviour, text string) { b.statusKeyID, b.encryptKeyID = &text, &text })},
	{"padded-answer", "[BYTES]", "71680",
		"Status answers as usual, with BYTES more bytes in an unknown field: valid, and huge",
		withSize(func(b *behaviour, n int) { b.padding = n })},
	{FaultRefuseEncrypt, "[CODE [TEXT]]", "PermissionDenied encrypt refused",
		"Encrypt fails with a gRPC code (PermissionDenied by default) and TEXT", refuse(CallEncrypt)},
	{FaultRefuseDecrypt, "[CODE [TEXT]]", "PermissionDenied decrypt refused",
		"Decrypt fails with a gRPC code (PermissionDenied by default) and TEXT", refuse(CallDecrypt)},
	{Name: "wrong-decrypt", What: "Decrypt succeeds with other bytes than were encrypted"},
	{Name: "short-decrypt", What: "Decrypt succeeds with the last byte missing"},
	{FaultEndsAt, "[CALL [AFTER]]", "encrypt 2s", "the process ends at CALL (status, encrypt, decrypt, or " +
		formerDecrypt + ": of what another key encrypted), and is restarted AFTER later", endsAt},
	{FaultKeepVersions, "[N]", "2", "the KMS keeps the N newest keys: what an older one encrypted, is not decrypted",
		withSize(func(b *behaviour, n int) { b.versions = n })},
	{Name: FaultReplacedKey, What: "another key under the same key_id: neither decrypts what the other encrypted"},
	{Name: "lagging-status", What: "Status names the key_id of the call to Status before, on each connection"},
	{"huge-headers", "[BYTES]", "20480",
		"Status answers as usual, with a header of BYTES bytes (20 KiB by default)",
		withSize(func(b *behaviour, n int) { b.headers = n })},
	{"encrypt-key-id", "[TEXT]", "not-the-key-of-status",
		"Encrypt answers key_id=TEXT, which is not the one Status answers",
		with(func(b *behaviour, text string) { b.encryptKeyID = &text })},
	{Name: FaultRemoveSocket, What: "the socket is removed; open connections are still served"},
	{Name: FaultCrash, What: "all connections break, and nothing listens at the socket, which stays"},
}

func with(set func(*behaviour, string)) func(*behaviour, string) error {
	return func(b *behaviour, args string) error { set(b, args); return nil }
}

func withSize(set func(*behaviour, int)) func(*behaviour, string) error {
	return func(b *behaviour, args string) error {
		n, err := strconv.ParseUint(args, 10, 26) // below 64 MiB
		set(b, int(n))
		return err
	}
}

func slow(b *behaviour, args string) error {
	text, of, _ := strings.Cut(args, " ")
	delay, err := time.ParseDuration(text)
	if err != nil || delay <= 0 {
		return fmt.Errorf("%q is not a positive duration such as 300ms or 2s", text)
	}
	calls, err := parseCalls(cmp.Or(of, string(CallStatus)))
	for _, call := range calls {
		b.delay[call] = delay
	}
	return err
}

// formerDecrypt is a call to Decrypt with a key_id that is not the current one.
const formerDecrypt = "former-decrypt"

func endsAt(b *behaviour, args string) (err error) {
	call, after, _ := strings.Cut(args, " ")
	if b.endsAt = strings.ToLower(call); b.endsAt != formerDecrypt {
		if calls, err := parseCalls(call); err != nil || len(calls) != 1 {
			return fmt.Errorf("want one call, or %s, got %q", formerDecrypt, call)
		}
	}
	b.restart, err = time.ParseDuration(cmp.Or(after, "2s"))
	return err
}

// ends reports whether the process ends at this call.
func (b *behaviour) ends(call Call, request any, current string) bool {
	decrypt, _ := request.(*kmsapi.DecryptRequest)
	return strings.EqualFold(b.endsAt, string(call)) ||
		b.endsAt == formerDecrypt && decrypt != nil && decrypt.KeyId != current
}

// refuse makes a call fail. Its arguments are the gRPC code, as Go spells it, and the error's text.
func refuse(call Call) func(*behaviour, string) error {
	return func(b *behaviour, args string) error {
		name, text, _ := strings.Cut(args, " ")
		for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
			if strings.EqualFold(code.String(), name) {
				b.refused[call] = status.New(code, cmp.Or(text, "injected error"))
				return nil
			}
		}
		return fmt.Errorf("no gRPC error code %q", name)
	}
}

// parseCalls reads the names of calls, separated by spaces, in upper or lower case. "all" means all calls.
func parseCalls(text string) ([]Call, error) {
	if text == "all" {
		return allCalls, nil
	}
	var calls []Call
	for word := range strings.FieldsSeq(text) {
		i := slices.IndexFunc(allCalls, func(c Call) bool { return strings.EqualFold(word, string(c)) })
		if i < 0 {
			return nil, fmt.Errorf("no call %q: want some of %v, or all", word, allCalls)
		}
		calls = append(calls, allCalls[i])
	}
	return calls, nil
}
