package kmsplugin

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

func mustBeUnimplemented(t *testing.T, c caller) {
	t.Helper()
	_, err := c.health.Check(soon(t), &healthpb.HealthCheckRequest{})
	mustFail(t, err, codes.Unimplemented, "")
}

func mustFail(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Fatalf("got error %v, want code %s and text %q", err, code, text)
	}
}

// answers makes a check of what Status answers.
func answers(want func(p *Plugin, a *kmsapi.StatusResponse) bool) func(*testing.T, *Plugin, caller) {
	return func(t *testing.T, p *Plugin, c caller) {
		answer, err := c.status(t)
		if err != nil {
			t.Fatal(err)
		}
		if !want(p, answer) {
			t.Fatalf("unexpected answer: %.300s", answer)
		}
	}
}

// shows is how each fault, set with its example, shows to a client.
var shows = map[string]func(t *testing.T, p *Plugin, c caller){
	FaultUnhealthy: answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "vault is sealed" && a.Version == "v2" && a.KeyId == p.KeyID()
	}),
	FaultRPCError: func(t *testing.T, _ *Plugin, c caller) {
		_, err := c.status(t)
		mustFail(t, err, codes.Internal, "the remote key is disabled")
	},
	FaultHang: func(t *testing.T, p *Plugin, c caller) {
		ctx, cancel := context.WithCancel(soon(t))
		failed := make(chan error, 1)
		before := p.Calls(CallStatus).Count
		go func() {
			_, err := c.kms.Status(ctx, &kmsapi.StatusRequest{})
			failed <- err
		}()
		if err := p.WaitForCalls(soon(t), CallStatus, before+1); err != nil {
			t.Fatal(err)
		}
		// An answer to the second call, sent later, shows that the first hangs.
		c.encrypt(t, "secret")
		select {
		case err := <-failed:
			t.Fatalf("Status was answered: %v", err)
		default:
		}
		cancel()
		mustFail(t, <-failed, codes.Canceled, "")
	},
	FaultSlow: func(t *testing.T, _ *Plugin, c caller) {
		sent := time.Now()
		if _, err := c.status(t); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(sent); took < 300*time.Millisecond {
			t.Fatalf("Status took %s, want 300ms at least", took)
		}
	},
	FaultWrongVersion: answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v3" && a.KeyId == p.KeyID()
	}),
	FaultV2beta1: answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v2beta1" && a.KeyId == p.KeyID()
	}),
	FaultChangingVersion: func(t *testing.T, p *Plugin, c caller) {
		// A second client in between must not take this one's turn.
		other := dial(t, p)
		var versions []string
		for range 4 {
			answer, err := c.status(t)
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, answer.Version)
			if _, err := other.status(t); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{"v2beta1", "v2", "v2beta1", "v2"}; !slices.Equal(versions, want) {
			t.Fatalf("versions %v, want %v", versions, want)
		}
	},
	FaultEmptyKeyID: answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v2" && a.KeyId == ""
	}),
	FaultLongKeyID: answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && len(a.KeyId) == 1025
	}),
	FaultKeyID: func(t *testing.T, _ *Plugin, c caller) {
		answer, err := c.status(t)
		if err != nil || answer.KeyId != "some-other-key" || answer.Healthz != "ok" {
			t.Fatalf("Status = %v, %v", answer, err)
		}
		encrypted := c.encrypt(t, "secret")
		if encrypted.KeyId != "some-other-key" {
			t.Fatalf("Encrypt answered key_id %q", encrypted.KeyId)
		}
		if plaintext, err := c.decrypt(t, encrypted); err != nil || plaintext != "secret" {
			t.Fatalf("Decrypt = %q, %v", plaintext, err)
		}
	},
	FaultHugeAnswer: answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool {
		return len(a.Healthz) == 70<<10
	}),
	FaultPaddedAnswer: answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v2" && a.KeyId == p.KeyID() && len(a.ProtoReflect().GetUnknown()) > 70<<10
	}),
	FaultRefuseEncrypt: func(t *testing.T, _ *Plugin, c caller) {
		_, err := c.kms.Encrypt(soon(t), &kmsapi.EncryptRequest{Plaintext: []byte("secret")})
		mustFail(t, err, codes.PermissionDenied, "no right to encrypt")
	},
	FaultRefuseDecrypt: func(t *testing.T, _ *Plugin, c caller) {
		_, err := c.decrypt(t, c.encrypt(t, "secret"))
		mustFail(t, err, codes.PermissionDenied, "no right to decrypt")
	},
	FaultWrongDecrypt: func(t *testing.T, _ *Plugin, c caller) {
		for _, plaintext := range []string{"secret", ""} {
			got, err := c.decrypt(t, c.encrypt(t, plaintext))
			if err != nil || got == plaintext {
				t.Fatalf("Decrypt = %q, %v; want other bytes than %q", got, err, plaintext)
			}
		}
	},
	FaultShortDecrypt: func(t *testing.T, _ *Plugin, c caller) {
		if got, err := c.decrypt(t, c.encrypt(t, "secret")); err != nil || got != "secre" {
			t.Fatalf("Decrypt = %q, %v", got, err)
		}
	},
	FaultReplacedKey: func(t *testing.T, p *Plugin, c caller) {
		during := c.encrypt(t, "secret")
		if got, err := c.decrypt(t, during); err != nil || got != "secret" || during.KeyId != p.KeyID() {
			t.Fatalf("Decrypt of what was encrypted meanwhile = %q, %v", got, err)
		}
		if err := p.ClearFault(FaultReplacedKey); err != nil {
			t.Fatal(err)
		}
		_, err := c.decrypt(t, during)
		mustFail(t, err, codes.InvalidArgument, "")
	},
	FaultLaggingStatus: func(t *testing.T, p *Plugin, c caller) {
		former := p.KeyID()
		if _, err := c.status(t); err != nil {
			t.Fatal(err)
		}
		current, err := p.Rotate()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{former, current} {
			if answer, err := c.status(t); err != nil || answer.KeyId != want {
				t.Fatalf("Status = %v, %v; want %s", answer, err, want)
			}
		}
	},
	FaultHugeHeaders: func(t *testing.T, _ *Plugin, c caller) {
		var headers metadata.MD
		if _, err := c.status(t, grpc.Header(&headers)); err != nil || len(headers.Get("padding")[0]) != 20<<10 {
			t.Fatalf("%v", err)
		}
	},
	FaultEncryptKeyID: func(t *testing.T, p *Plugin, c caller) {
		answer, err := c.status(t)
		if err != nil || answer.KeyId != p.KeyID() {
			t.Fatalf("Status = %v, %v", answer, err)
		}
		if encrypted := c.encrypt(t, "secret"); encrypted.KeyId != "not-the-key-of-status" {
			t.Fatalf("Encrypt answered key_id %q", encrypted.KeyId)
		}
	},
	FaultNotServing: func(t *testing.T, _ *Plugin, c caller) {
		answer, err := c.health.Check(soon(t), &healthpb.HealthCheckRequest{})
		if err != nil || answer.Status != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Fatalf("Check = %v, %v", answer, err)
		}
	},
	FaultRemoveSocket: func(t *testing.T, p *Plugin, c caller) {
		if _, err := os.Lstat(string(p.socket)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the socket's file is there: %v", err)
		}
		if _, err := net.Dial("unix", string(p.socket)); !errors.Is(err, unix.ENOENT) {
			t.Fatalf("connecting: %v, want ENOENT", err)
		}
		if _, err := c.status(t); err != nil {
			t.Fatalf("the open connection is not served: %v", err)
		}
	},
	FaultCrash: func(t *testing.T, p *Plugin, c caller) {
		if info, err := os.Lstat(string(p.socket)); err != nil || info.Mode().Type() != fs.ModeSocket {
			t.Fatalf("the socket's file is not there: %v, %v", info, err)
		}
		if _, err := net.Dial("unix", string(p.socket)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("connecting: %v, want ECONNREFUSED", err)
		}
		_, err := c.status(t)
		mustFail(t, err, codes.Unavailable, "")
	},
}

func TestEveryFaultShowsAndHeals(t *testing.T) {
	for _, kind := range Faults() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			check := shows[kind.Name]
			if check == nil {
				t.Fatal("a fault without a check")
			}
			p := start(t, Options{})
			c := dial(t, p)
			c.mustBeHealthy(t, p)

			if err := p.SetFault(Fault{Name: kind.Name, Args: kind.Example}); err != nil {
				t.Fatal(err)
			}
			check(t, p, c)
			mustStillWork(t, p, c, kind)
			if err := p.ClearFault(kind.Name); err != nil {
				t.Fatal(err)
			}
			c.mustBeHealthy(t, p)

			if err := p.SetFault(Fault{Name: kind.Name, Args: kind.Example}); err != nil {
				t.Fatal(err)
			}
			if err := p.ClearFaults(); err != nil {
				t.Fatal(err)
			}
			c.mustBeHealthy(t, p)
		})
	}
}

// mustStillWork checks that a fault touches no more than its row lists.
func mustStillWork(t *testing.T, p *Plugin, c caller, kind FaultKind) {
	t.Helper()
	untouched := func(call Call) bool { return !slices.Contains(kind.Calls, call) }
	if untouched(CallStatus) {
		if answer, err := c.status(t); err != nil || answer.Healthz != "ok" || answer.Version != "v2" || answer.KeyId != p.KeyID() {
			t.Errorf("Status = %v, %v", answer, err)
		}
	}
	if untouched(CallEncrypt) {
		encrypted := c.encrypt(t, "secret")
		if encrypted.KeyId != p.KeyID() {
			t.Errorf("Encrypt answered key_id %q", encrypted.KeyId)
		}
		if untouched(CallDecrypt) {
			if plaintext, err := c.decrypt(t, encrypted); err != nil || plaintext != "secret" {
				t.Errorf("Decrypt = %q, %v", plaintext, err)
			}
		}
	}
	if untouched(CallHealth) {
		mustBeUnimplemented(t, c)
	}
}

func TestHealingReleasesCallsThatHangOrWait(t *testing.T) {
	for _, fault := range []Fault{
		{Name: FaultHang, Args: []string{"all"}},
		{Name: FaultSlow, Args: []string{"1h", "encrypt, status"}},
	} {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			p := start(t, Options{Faults: []Fault{fault}})
			c := dial(t, p)
			answered := make(chan error, 2)
			go func() {
				_, err := c.status(t)
				answered <- err
			}()
			go func() {
				_, err := c.kms.Encrypt(soon(t), &kmsapi.EncryptRequest{Plaintext: []byte("secret")})
				answered <- err
			}()
			for _, call := range []Call{CallStatus, CallEncrypt} {
				if err := p.WaitForCalls(soon(t), call, 1); err != nil {
					t.Fatal(err)
				}
			}
			// Another change must not release them: if it did, they would fail.
			p.mustSet(t, Fault{Name: FaultRPCError, Args: []string{"Internal"}})
			p.mustSet(t, Fault{Name: FaultRefuseEncrypt})
			for _, name := range []string{FaultRPCError, FaultRefuseEncrypt} {
				if err := p.ClearFault(name); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.ClearFaults(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := <-answered; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func (p *Plugin) mustSet(t *testing.T, f Fault) {
	t.Helper()
	if err := p.SetFault(f); err != nil {
		t.Fatal(err)
	}
}

func TestSeveralFaultsHoldAtOnceAndTheLaterOneWins(t *testing.T) {
	t.Parallel()
	p := start(t, Options{Faults: []Fault{{Name: FaultWrongVersion}, {Name: FaultHugeAnswer}}})
	c := dial(t, p)
	p.mustSet(t, Fault{Name: FaultUnhealthy, Args: []string{"sealed"}})
	p.mustSet(t, Fault{Name: FaultUnhealthy, Args: []string{"sealed again"}})
	answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "sealed again" && a.Version == "v3"
	})(t, p, c)
	if n := len(p.State().Faults); n != 3 {
		t.Errorf("%d faults are in force, want 3", n)
	}
}

func TestABadFaultChangesNothing(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	p.mustSet(t, Fault{Name: FaultUnhealthy, Args: []string{"sealed"}})
	for _, f := range []Fault{
		{Name: ""},
		{Name: "sulk"},
		{Name: FaultUnhealthy, Args: []string{"ok"}},
		{Name: FaultUnhealthy, Args: []string{"\xff"}},
		{Name: FaultRPCError},
		{Name: FaultRPCError, Args: []string{"OK"}},
		{Name: FaultRPCError, Args: []string{"Code(17)"}},
		{Name: FaultHang, Args: []string{"Statsu"}},
		{Name: FaultHang, Args: []string{","}},
		{Name: FaultSlow},
		{Name: FaultSlow, Args: []string{"fast"}},
		{Name: FaultSlow, Args: []string{"-1s"}},
		{Name: FaultSlow, Args: []string{"1s", "never"}},
		{Name: FaultLongKeyID, Args: []string{"many"}},
		{Name: FaultLongKeyID, Args: []string{"1", "2"}},
		{Name: FaultHugeAnswer, Args: []string{"-1"}},
		{Name: FaultPaddedAnswer, Args: []string{"100000000000"}},
		{Name: FaultKeyID},
		{Name: FaultCrash, Args: []string{"now"}},
	} {
		if err := p.SetFault(f); err == nil {
			t.Errorf("%s was accepted", f)
		}
	}
	if err := p.ClearFault("sulk"); err == nil {
		t.Error("a fault that is not in the table was cleared")
	}
	if got := p.State().Faults; len(got) != 1 || got[0].String() != "unhealthy sealed" {
		t.Errorf("faults in force: %v", got)
	}
}

func TestAFaultIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"crash":                               `crash`,
		" unhealthy  vault is  sealed ":       `unhealthy "vault is  sealed"`,
		"rpc-error permission_denied":         `rpc-error permission_denied`,
		"rpc-error Internal the key is gone":  `rpc-error Internal "the key is gone"`,
		"slow 2s  status, decrypt":            `slow 2s "status, decrypt"`,
		"hang status,encrypt":                 `hang status,encrypt`,
		"refuse-decrypt Unauthenticated gone": `refuse-decrypt Unauthenticated gone`,
	} {
		fault, err := ParseFault(line)
		if err != nil || fault.String() != want {
			t.Errorf("ParseFault(%q) = %s, %v; want %s", line, fault, err, want)
		}
	}
	for _, line := range []string{"", "sulk", "crash now", "rpc-error", "unhealthy ok"} {
		if fault, err := ParseFault(line); err == nil {
			t.Errorf("ParseFault(%q) = %s, want an error", line, fault)
		}
	}
}

func TestTheTableIsSoundAndInHelp(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, kind := range Faults() {
		if names[kind.Name] {
			t.Errorf("%s is in the table twice", kind.Name)
		}
		names[kind.Name] = true
		if kind.What == "" || strings.Contains(kind.What, "\n") || len(kind.Calls) == 0 {
			t.Errorf("%s: no single line describes what it does, or no call shows it", kind.Name)
		}
		if !strings.Contains(Help(), "\n  "+kind.Usage()+"  ") || !strings.Contains(Help(), kind.What) {
			t.Errorf("help does not list %q", kind.Usage())
		}
	}
	for _, c := range commands() {
		if names[c.name] {
			t.Errorf("%s is a command and a fault", c.name)
		}
		if !strings.Contains(Help(), "\n  "+c.usage+"  ") {
			t.Errorf("help does not list %q", c.usage)
		}
	}
}
