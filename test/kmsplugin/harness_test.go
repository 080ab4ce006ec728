package kmsplugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// waitLimit bounds each wait. No test waits until it has elapsed
// unless the test fails.
const waitLimit = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is a context for what must happen soon.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// socketDir is a directory whose name leaves room for a socket's: t.TempDir()
// holds the name of the test, and sockets have 107 bytes.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// start runs a plugin until the test ends. Missing options are filled in.
func start(t *testing.T, o Options) *Plugin {
	t.Helper()
	if o.Endpoint == "" {
		o.Endpoint = "unix://" + filepath.Join(socketDir(t), "kms.sock")
	}
	if o.StateDir == "" {
		o.StateDir = t.TempDir()
	}
	p, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// caller is a client of the plugin over one connection.
type caller struct {
	kms    kmsapi.KeyManagementServiceClient
	health healthpb.HealthClient
}

// dial connects a real gRPC client to the real socket. It reconnects at once:
// gRPC's own backoff begins at a second.
func dial(t *testing.T, p *Plugin) caller {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", p.socket)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 5 * time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond,
		}, MinConnectTimeout: waitLimit}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("closing the connection: %v", err)
		}
	})
	return caller{kms: kmsapi.NewKeyManagementServiceClient(conn), health: healthpb.NewHealthClient(conn)}
}

func (c caller) status(t *testing.T, opts ...grpc.CallOption) (*kmsapi.StatusResponse, error) {
	t.Helper()
	return c.kms.Status(soon(t), &kmsapi.StatusRequest{}, opts...)
}

// encrypt encrypts, and must succeed.
func (c caller) encrypt(t *testing.T, plaintext string) *kmsapi.EncryptResponse {
	t.Helper()
	answer, err := c.kms.Encrypt(soon(t), &kmsapi.EncryptRequest{Plaintext: []byte(plaintext), Uid: "uid"})
	if err != nil {
		t.Fatalf("Encrypt: %v", err)
	}
	return answer
}

// decrypt gives back what Encrypt answered.
func (c caller) decrypt(t *testing.T, e *kmsapi.EncryptResponse) (string, error) {
	t.Helper()
	answer, err := c.kms.Decrypt(soon(t), &kmsapi.DecryptRequest{
		Ciphertext: e.Ciphertext, KeyId: e.KeyId, Annotations: e.Annotations, Uid: "uid",
	})
	return string(answer.GetPlaintext()), err
}

// mustBeHealthy makes every call and wants the answers of a healthy plugin,
// whose health service is off.
func (c caller) mustBeHealthy(t *testing.T, p *Plugin) {
	t.Helper()
	// A client learns of a broken connection some time after it broke, and may
	// send a call over it until then.
	deadline := time.Now().Add(waitLimit)
	answer, err := c.status(t, grpc.WaitForReady(true))
	for status.Code(err) == codes.Unavailable && time.Now().Before(deadline) {
		answer, err = c.status(t, grpc.WaitForReady(true))
	}
	if err != nil {
		t.Fatalf("Status: %v", err)
	}
	if answer.Healthz != "ok" || answer.Version != "v2" || answer.KeyId != p.KeyID() || len(answer.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("Status = %v, want ok, v2, %s", answer, p.KeyID())
	}
	encrypted := c.encrypt(t, "secret")
	if encrypted.KeyId != p.KeyID() {
		t.Fatalf("Encrypt answered key_id %q, want %q", encrypted.KeyId, p.KeyID())
	}
	if plaintext, err := c.decrypt(t, encrypted); err != nil || plaintext != "secret" {
		t.Fatalf("Decrypt = %q, %v", plaintext, err)
	}
	mustBeUnimplemented(t, c)
}
