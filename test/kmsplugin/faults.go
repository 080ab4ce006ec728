package kmsplugin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The names of the faults. What each does is in the table, see [Faults].
const (
	FaultUnhealthy       = "unhealthy"
	FaultRPCError        = "rpc-error"
	FaultHang            = "hang"
	FaultSlow            = "slow"
	FaultWrongVersion    = "wrong-version"
	FaultV2beta1         = "v2beta1"
	FaultChangingVersion = "changing-version"
	FaultEmptyKeyID      = "empty-key-id"
	FaultLongKeyID       = "long-key-id"
	FaultKeyID           = "key-id"
	FaultHugeAnswer      = "huge-answer"
	FaultPaddedAnswer    = "padded-answer"
	FaultRefuseEncrypt   = "refuse-encrypt"
	FaultRefuseDecrypt   = "refuse-decrypt"
	FaultWrongDecrypt    = "wrong-decrypt"
	FaultShortDecrypt    = "short-decrypt"
	FaultReplacedKey     = "replaced-key"
	FaultLaggingStatus   = "lagging-status"
	FaultHugeHeaders     = "huge-headers"
	FaultEncryptKeyID    = "encrypt-key-id"
	FaultNotServing      = "not-serving"
	FaultRemoveSocket    = "remove-socket"
	FaultCrash           = "crash"
)

// maxAnswer keeps a typing error from eating the host's memory.
const maxAnswer = 64 << 20

// Faults returns the table of faults. Several may be active; where two set
// the same thing, the later one wins. It returns a new copy.
func Faults() []FaultKind {
	kms := []Call{CallStatus, CallEncrypt, CallDecrypt}
	return []FaultKind{{
		Name:    FaultUnhealthy,
		Params:  []Param{{Name: "TEXT", Optional: true, Default: "unhealthy"}},
		What:    `Status answers healthz=TEXT instead of "ok"`,
		Example: []string{"vault is sealed"},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) error {
			if args[0] == healthzOK {
				return fmt.Errorf("healthz %q is not a fault", healthzOK)
			}
			b.healthz = args[0]
			return nil
		},
	}, {
		Name:    FaultRPCError,
		Params:  []Param{{Name: "CODE"}, {Name: "TEXT", Optional: true, Default: "injected error"}},
		What:    "Status fails with a gRPC code (Internal, Unavailable, PermissionDenied, ...) and TEXT",
		Example: []string{"Internal", "the remote key is disabled"},
		Calls:   []Call{CallStatus},
		apply:   refuse(CallStatus),
	}, {
		Name:    FaultHang,
		Params:  []Param{{Name: "CALLS", Optional: true, Default: string(CallStatus)}},
		What:    "Status (or CALLS: status encrypt decrypt health, all) gets no answer until healed or the caller gives up",
		Example: []string{},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) error {
			calls, err := parseCalls(args[0])
			for _, call := range calls {
				b.hang[call] = true
			}
			return err
		},
	}, {
		Name:    FaultSlow,
		Params:  []Param{{Name: "DURATION"}, {Name: "CALLS", Optional: true, Default: string(CallStatus)}},
		What:    "Status (or CALLS) is answered DURATION (2s, 300ms) after it came in",
		Example: []string{"300ms"},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) error {
			delay, err := time.ParseDuration(args[0])
			if err != nil || delay <= 0 {
				return fmt.Errorf("%q is not a positive duration such as 300ms or 2s", args[0])
			}
			calls, err := parseCalls(args[1])
			for _, call := range calls {
				b.delay[call] = delay
			}
			return err
		},
	}, {
		Name:    FaultWrongVersion,
		Params:  []Param{{Name: "TEXT", Optional: true, Default: "v3"}},
		What:    "Status answers version=TEXT",
		Example: []string{"v3"},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) error {
			b.version, b.changingVersion = args[0], false
			return nil
		},
	}, {
		Name:    FaultV2beta1,
		What:    "Status answers version=v2beta1: valid, but a change for a client that saw v2",
		Example: []string{},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, _ []string) error {
			b.version, b.changingVersion = versionV2beta1, false
			return nil
		},
	}, {
		Name:    FaultChangingVersion,
		What:    "Status answers v2beta1 and v2 in turns, each connection by itself",
		Example: []string{},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, _ []string) error {
			b.changingVersion = true
			return nil
		},
	}, {
		Name:    FaultEmptyKeyID,
		What:    "Status answers an empty key_id",
		Example: []string{},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, _ []string) error {
			b.statusKeyID = new(string)
			return nil
		},
	}, {
		Name:    FaultLongKeyID,
		Params:  []Param{{Name: "BYTES", Optional: true, Default: "1025"}},
		What:    "Status answers a key_id of BYTES bytes; 1024 are allowed",
		Example: []string{"1025"},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) error {
			text, err := fill(args[0])
			b.statusKeyID = &text
			return err
		},
	}, {
		Name:    FaultKeyID,
		Params:  []Param{{Name: "TEXT"}},
		What:    "Status and Encrypt answer key_id=TEXT, as if the remote key were called so",
		Example: []string{"some-other-key"},
		Calls:   []Call{CallStatus, CallEncrypt},
		apply: func(b *behaviour, args []string) error {
			b.statusKeyID, b.encryptKeyID = &args[0], &args[0]
			return nil
		},
	}, {
		Name:    FaultHugeAnswer,
		Params:  []Param{{Name: "BYTES", Optional: true, Default: "71680"}},
		What:    "Status answers a healthz of BYTES bytes (70 KiB by default)",
		Example: []string{"71680"},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) error {
			text, err := fill(args[0])
			b.healthz = text
			return err
		},
	}, {
		Name:    FaultPaddedAnswer,
		Params:  []Param{{Name: "BYTES", Optional: true, Default: "71680"}},
		What:    "Status answers as usual, with BYTES more bytes in an unknown field: valid, and huge",
		Example: []string{"71680"},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) (err error) {
			b.padding, err = size(args[0])
			return err
		},
	}, {
		Name: FaultRefuseEncrypt,
		Params: []Param{
			{Name: "CODE", Optional: true, Default: codes.PermissionDenied.String()},
			{Name: "TEXT", Optional: true, Default: "encrypt refused"},
		},
		What:    "Encrypt fails with a gRPC code (PermissionDenied by default) and TEXT",
		Example: []string{"PermissionDenied", "no right to encrypt"},
		Calls:   []Call{CallEncrypt},
		apply:   refuse(CallEncrypt),
	}, {
		Name: FaultRefuseDecrypt,
		Params: []Param{
			{Name: "CODE", Optional: true, Default: codes.PermissionDenied.String()},
			{Name: "TEXT", Optional: true, Default: "decrypt refused"},
		},
		What:    "Decrypt fails with a gRPC code (PermissionDenied by default) and TEXT",
		Example: []string{"PermissionDenied", "no right to decrypt"},
		Calls:   []Call{CallDecrypt},
		apply:   refuse(CallDecrypt),
	}, {
		Name:    FaultWrongDecrypt,
		What:    "Decrypt succeeds with other bytes than were encrypted",
		Example: []string{},
		Calls:   []Call{CallDecrypt},
		apply: func(b *behaviour, _ []string) error {
			b.wrongDecrypt = true
			return nil
		},
	}, {
		Name:    FaultShortDecrypt,
		What:    "Decrypt succeeds with the last byte missing",
		Example: []string{},
		Calls:   []Call{CallDecrypt},
		apply: func(b *behaviour, _ []string) error {
			b.shortDecrypt = true
			return nil
		},
	}, {
		Name:    FaultReplacedKey,
		What:    "the key is another under the same key_id: what was encrypted before the fault cannot be decrypted, nor after it what was during it",
		Example: []string{},
		Calls:   []Call{CallDecrypt},
		apply: func(b *behaviour, _ []string) error {
			b.replacedKey = true
			return nil
		},
	}, {
		Name:    FaultLaggingStatus,
		What:    "Status names the key_id that was current at the call to Status before, on each connection",
		Example: []string{},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, _ []string) error {
			b.laggingStatus = true
			return nil
		},
	}, {
		Name:    FaultHugeHeaders,
		Params:  []Param{{Name: "BYTES", Optional: true, Default: "20480"}},
		What:    "Status answers as usual, with a header of BYTES bytes (20 KiB by default)",
		Example: []string{"20480"},
		Calls:   []Call{CallStatus},
		apply: func(b *behaviour, args []string) (err error) {
			b.headers, err = size(args[0])
			return err
		},
	}, {
		Name:    FaultEncryptKeyID,
		Params:  []Param{{Name: "TEXT", Optional: true, Default: "not-the-key-of-status"}},
		What:    "Encrypt answers key_id=TEXT, which is not the one Status answers",
		Example: []string{"not-the-key-of-status"},
		Calls:   []Call{CallEncrypt},
		apply: func(b *behaviour, args []string) error {
			b.encryptKeyID = &args[0]
			return nil
		},
	}, {
		Name:    FaultNotServing,
		What:    "grpc.health.v1 answers NOT_SERVING, also where it was off",
		Example: []string{},
		Calls:   []Call{CallHealth},
		apply: func(b *behaviour, _ []string) error {
			b.notServing = true
			return nil
		},
	}, {
		Name:    FaultRemoveSocket,
		What:    "the socket is removed, while open connections are still served; undone by restore-socket",
		Example: []string{},
		Calls:   kms,
		apply: func(b *behaviour, _ []string) error {
			b.noSocket = true
			return nil
		},
	}, {
		Name:    FaultCrash,
		What:    "all connections break and the plugin stops listening, but keeps the socket's file; undone by return",
		Example: []string{},
		Calls:   allCalls(),
		apply: func(b *behaviour, _ []string) error {
			b.crashed = true
			return nil
		},
	}}
}

// refuse makes a call fail with the code and text in args.
func refuse(call Call) func(*behaviour, []string) error {
	return func(b *behaviour, args []string) error {
		code, err := parseCode(args[0])
		b.refused[call] = status.New(code, args[1])
		return err
	}
}

// parseCode reads the name of a gRPC code, in any case, with or without
// underscores. OK is not among them: it would be no error.
func parseCode(text string) (codes.Code, error) {
	wanted := strings.ToLower(strings.ReplaceAll(text, "_", ""))
	var names []string
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		if strings.ToLower(code.String()) == wanted {
			return code, nil
		}
		names = append(names, code.String())
	}
	return codes.OK, fmt.Errorf("no gRPC error code %q: want one of %s", text, strings.Join(names, ", "))
}

func size(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxAnswer {
		return 0, fmt.Errorf("%q is not a number of bytes from 0 to %d", text, maxAnswer)
	}
	return n, nil
}

func fill(text string) (string, error) {
	n, err := size(text)
	return strings.Repeat("x", n), err
}
