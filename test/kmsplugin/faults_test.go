package kmsplugin

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
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

// shows is how each fault, without arguments, shows to a client.
var shows = map[string]func(t *testing.T, p *Plugin, c caller){
	FaultUnhealthy: answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "unhealthy" && a.Version == "v2" && a.KeyId == p.KeyID()
	}),
	FaultRPCError: func(t *testing.T, _ *Plugin, c caller) {
		_, err := c.status(t)
		mustFail(t, err, codes.Internal, "injected error")
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
	"wrong-version": answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v3" && a.KeyId == p.KeyID()
	}),
	"v2beta1": answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v2beta1" && a.KeyId == p.KeyID()
	}),
	"changing-version": func(t *testing.T, p *Plugin, c caller) {
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
	"empty-key-id": answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v2" && a.KeyId == ""
	}),
	"long-key-id": answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool {
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
	"huge-answer": answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool {
		return len(a.Healthz) == 70<<10
	}),
	"padded-answer": answers(func(p *Plugin, a *kmsapi.StatusResponse) bool {
		return a.Healthz == "ok" && a.Version == "v2" && a.KeyId == p.KeyID() && len(a.ProtoReflect().GetUnknown()) > 70<<10
	}),
	FaultRefuseEncrypt: func(t *testing.T, _ *Plugin, c caller) {
		_, err := c.kms.Encrypt(soon(t), &kmsapi.EncryptRequest{Plaintext: []byte("secret")})
		mustFail(t, err, codes.PermissionDenied, "encrypt refused")
	},
	FaultRefuseDecrypt: func(t *testing.T, _ *Plugin, c caller) {
		_, err := c.decrypt(t, c.encrypt(t, "secret"))
		mustFail(t, err, codes.PermissionDenied, "decrypt refused")
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
		if err := p.ClearFaults(FaultReplacedKey); err != nil {
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
	"huge-headers": func(t *testing.T, _ *Plugin, c caller) {
		var headers metadata.MD
		if _, err := c.status(t, grpc.Header(&headers)); err != nil || len(headers.Get("padding")[0]) != 20<<10 {
			t.Fatalf("%v", err)
		}
	},
	"encrypt-key-id": func(t *testing.T, p *Plugin, c caller) {
		answer, err := c.status(t)
		if err != nil || answer.KeyId != p.KeyID() {
			t.Fatalf("Status = %v, %v", answer, err)
		}
		if encrypted := c.encrypt(t, "secret"); encrypted.KeyId != "not-the-key-of-status" {
			t.Fatalf("Encrypt answered key_id %q", encrypted.KeyId)
		}
	},
	"not-serving": func(t *testing.T, _ *Plugin, c caller) {
		answer, err := c.health.Check(soon(t), &healthpb.HealthCheckRequest{})
		if err != nil || answer.Status != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Fatalf("Check = %v, %v", answer, err)
		}
	},
	FaultRemoveSocket: func(t *testing.T, p *Plugin, c caller) {
		if _, err := os.Lstat(p.socket); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the socket's file is there: %v", err)
		}
		if _, err := net.Dial("unix", p.socket); !errors.Is(err, unix.ENOENT) {
			t.Fatalf("connecting: %v, want ENOENT", err)
		}
		if _, err := c.status(t); err != nil {
			t.Fatalf("the open connection is not served: %v", err)
		}
	},
	FaultCrash: func(t *testing.T, p *Plugin, c caller) {
		if info, err := os.Lstat(p.socket); err != nil || info.Mode().Type() != fs.ModeSocket {
			t.Fatalf("the socket's file is not there: %v, %v", info, err)
		}
		if _, err := net.Dial("unix", p.socket); !errors.Is(err, unix.ECONNREFUSED) {
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
			p, client := controlled(t)
			c := dial(t, p)
			c.mustBeHealthy(t, p)

			state, err := client.Do(soon(t), kind.Name)
			if err != nil {
				t.Fatal(err)
			}
			if len(state.Faults) != 1 || state.Faults[0].String() != kind.Name {
				t.Errorf("faults %v, want %s", state.Faults, kind.Name)
			}
			check(t, p, c)
			mustStillWork(t, p, c, kind)
			if _, err := client.Do(soon(t), "heal", kind.Name); err != nil {
				t.Fatal(err)
			}
			c.mustBeHealthy(t, p)
		})
	}
}

// controlled starts a plugin that takes commands, and a client for it.
func controlled(t *testing.T) (*Plugin, *Client) {
	t.Helper()
	path := filepath.Join(socketDir(t), "control.sock")
	p := start(t, Options{})
	control, err := ServeControl(p, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := control.Close(); err != nil {
			t.Errorf("closing the control socket: %v", err)
		}
	})
	client, err := NewClient(path)
	if err != nil {
		t.Fatal(err)
	}
	return p, client
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
