package kmsplugin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	kmsapi "k8s.io/kms/apis/v2"
)

// abstract is a name of its own for each test: abstract sockets are shared by
// the whole network namespace.
func abstract(t *testing.T) string {
	return "unix:///@" + filepath.Base(socketDir(t))
}

func TestACrashBreaksCallsAndAReturnServesThem(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{"file": "", "abstract": abstract(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, Options{Endpoint: endpoint})
			c := dial(t, p)
			encrypted := c.encrypt(t, "secret")
			for range 3 {
				before := p.Calls(CallStatus).Count
				p.mustSet(t, Fault{Name: FaultHang})
				broken := make(chan error, 1)
				go func() {
					_, err := c.status(t)
					broken <- err
				}()
				if err := p.WaitForCalls(soon(t), CallStatus, before+1); err != nil {
					t.Fatal(err)
				}
				if err := p.Crash(); err != nil {
					t.Fatal(err)
				}
				mustFail(t, <-broken, codes.Unavailable, "")
				if _, err := net.Dial("unix", string(p.socket)); !errors.Is(err, unix.ECONNREFUSED) {
					t.Fatalf("connecting: %v, want ECONNREFUSED", err)
				}
				if state := p.State(); state.Listening || state.Connections.Open != 0 {
					t.Fatalf("state of the crashed: %+v", state)
				}
				if err := p.ClearFault(FaultHang); err != nil {
					t.Fatal(err)
				}
				if err := p.Return(); err != nil {
					t.Fatal(err)
				}
				c.mustBeHealthy(t, p)
				mustDecrypt(t, c, encrypted, "secret")
			}
		})
	}
}

// A client that connects and sends nothing is in gRPC's handshake, which has
// two minutes.
func TestSilentClientsHoldUpNeitherACrashNorTheEnd(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	silent := func() net.Conn {
		conn, err := net.Dial("unix", string(p.socket))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for _, end := range []func() error{p.Crash, p.Close} {
		if err := p.Return(); err != nil {
			t.Fatal(err)
		}
		conn := silent()
		// A call answered over a later connection: the silent one is accepted.
		c := dial(t, p)
		c.mustBeHealthy(t, p)
		begin := time.Now()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		if err := conn.SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
			t.Fatal(err)
		}
		// What gRPC reported first may be read before the end.
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the silent connection is open: %v", err)
		}
	}
}

func TestACrashedPluginCanBeIllWhenItReturns(t *testing.T) {
	t.Parallel()
	p := start(t, Options{Faults: []Fault{{Name: FaultCrash}}})
	if err := p.Crash(); err != nil {
		t.Errorf("crashing twice: %v", err)
	}
	p.mustSet(t, Fault{Name: FaultUnhealthy, Args: []string{"sealed"}})
	if err := p.Return(); err != nil {
		t.Fatal(err)
	}
	answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool { return a.Healthz == "sealed" })(t, p, dial(t, p))
}

func TestAPluginDoesNotReturnToASocketThatIsTaken(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	if err := p.Crash(); err != nil {
		t.Fatal(err)
	}
	successor := start(t, Options{Endpoint: p.Endpoint()})
	if err := p.Return(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Return: %v, want that the socket is in use", err)
	}
	// Neither may a change of faults, or the end, of the one that crashed
	// take the socket from its successor.
	p.mustSet(t, Fault{Name: FaultRemoveSocket})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	dial(t, successor).mustBeHealthy(t, successor)
}

func TestFaultsThatCannotBeClearedStayInForce(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	c := dial(t, p)
	c.mustBeHealthy(t, p)
	p.mustSet(t, Fault{Name: FaultUnhealthy, Args: []string{"sealed"}})
	p.mustSet(t, Fault{Name: FaultRemoveSocket})
	start(t, Options{Endpoint: p.Endpoint()})
	if err := p.ClearFaults(); err == nil {
		t.Error("the socket was restored, though another plugin has it")
	}
	if state := p.State(); state.Listening || len(state.Faults) != 2 {
		t.Errorf("state: %+v", state)
	}
	answers(func(_ *Plugin, a *kmsapi.StatusResponse) bool { return a.Healthz == "sealed" })(t, p, c)
}

func TestAnAbstractSocketTouchesNoFile(t *testing.T) {
	endpoint := abstract(t)
	t.Chdir(t.TempDir())
	name := strings.TrimPrefix(endpoint, "unix:///")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, Options{Endpoint: endpoint})
	p.mustSet(t, Fault{Name: FaultRemoveSocket})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(name); err != nil {
		t.Error(err)
	}
}

// Between the moment a connection is accepted and the moment it is known, all
// the others may be broken.
func TestAConnectionAcceptedDuringACrashIsBrokenToo(t *testing.T) {
	t.Parallel()
	socket := socket(abstract(t)[len("unix:///"):])
	l, err := socket.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("unix", string(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	s := &server{conns: map[*conn]struct{}{}}
	s.breakAll()
	accepted, err := listener{l, s}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := accepted.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing: %v, want that it is closed", err)
	}
}

func TestARemovedSocketIsRestored(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{"file": "", "abstract": abstract(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, Options{Endpoint: endpoint})
			c := dial(t, p)
			c.mustBeHealthy(t, p)
			for range 3 {
				if err := p.RemoveSocket(); err != nil {
					t.Fatal(err)
				}
				if conn, err := net.Dial("unix", string(p.socket)); err == nil {
					_ = conn.Close()
					t.Fatal("a new client could connect")
				}
				c.mustBeHealthy(t, p)
				if err := p.RestoreSocket(); err != nil {
					t.Fatal(err)
				}
				dial(t, p).mustBeHealthy(t, p)
			}
			c.mustBeHealthy(t, p)
			if accepted := p.State().Connections.Accepted; accepted != 4 {
				t.Errorf("%d connections were accepted, want 4: the first one was not kept", accepted)
			}
		})
	}
}

func TestACrashWithoutSocketLeavesNone(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{FaultRemoveSocket, FaultCrash}, {FaultCrash, FaultRemoveSocket}} {
		p := start(t, Options{})
		for _, name := range order {
			p.mustSet(t, Fault{Name: name})
		}
		if _, err := os.Lstat(string(p.socket)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: the socket's file: %v", order, err)
		}
		if err := p.Return(); err != nil {
			t.Fatal(err)
		}
		if p.State().Listening {
			t.Errorf("%v: it listens, with its socket removed", order)
		}
		if err := p.RestoreSocket(); err != nil {
			t.Fatal(err)
		}
		dial(t, p).mustBeHealthy(t, p)
	}
}

func TestStartRemovesASocketThatACrashLeft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "kms.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	p := start(t, Options{Endpoint: path})
	dial(t, p).mustBeHealthy(t, p)
}

func TestStartLeavesAloneWhatIsNotAStaleSocket(t *testing.T) {
	t.Parallel()
	living := start(t, Options{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for endpoint, want := range map[string]string{
		living.Endpoint():                 "in use",
		file:                              "not a socket",
		filepath.Join(file, "below"):      "not a directory",
		"/no/such/directory/for/kms.sock": "no such file",
	} {
		p, err := Start(Options{Endpoint: endpoint, StateDir: t.TempDir()})
		if err == nil {
			_ = p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
	dial(t, living).mustBeHealthy(t, living)
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("the file is now %q, %v", content, err)
	}
}

func TestEndpointsAreReadAsKubeAPIServerReadsThem(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"unix:///var/run/kms.sock":            "/var/run/kms.sock",
		"/var/run/kms.sock":                   "/var/run/kms.sock",
		"unix:///@kms":                        "@kms",
		"@kms":                                "@kms",
		"unix:///@kms/x":                      "@kms/x",
		"":                                    "",
		"kms.sock":                            "",
		"unix://kms.sock":                     "",
		"unix://@kms":                         "",
		"unix:///":                            "",
		"unix:///@":                           "",
		"@":                                   "",
		"tcp:///var/run/kms.sock":             "",
		"unix:///" + strings.Repeat("x", 106): "/" + strings.Repeat("x", 106),
		"unix:///" + strings.Repeat("x", 107): "",
	} {
		s, err := parseEndpoint(endpoint)
		if string(s) != want || (err == nil) != (want != "") {
			t.Errorf("parseEndpoint(%q) = %q, %v; want %q", endpoint, s, err, want)
		}
		if err != nil {
			continue
		}
		if again, err := parseEndpoint(s.endpoint()); err != nil || again != s {
			t.Errorf("%q came back from %q as %q, %v", s, s.endpoint(), again, err)
		}
	}
}

func TestHealthServiceIsOffUntilItIsTurnedOn(t *testing.T) {
	t.Parallel()
	p := start(t, Options{GRPCHealth: true})
	c := dial(t, p)
	check := func(service string) (*healthpb.HealthCheckResponse, error) {
		return c.health.Check(soon(t), &healthpb.HealthCheckRequest{Service: service})
	}
	for _, service := range []string{"", "v2.KeyManagementService"} {
		if answer, err := check(service); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("Check(%q) = %v, %v", service, answer, err)
		}
	}
	_, err := check("no.such.Service")
	mustFail(t, err, codes.NotFound, "")
	p.mustSet(t, Fault{Name: FaultNotServing})
	if answer, err := check(""); err != nil || answer.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("Check = %v, %v", answer, err)
	}
	if err := p.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	p.SetGRPCHealth(false)
	mustBeUnimplemented(t, c)
}

func TestCallsAreCountedEachByItsName(t *testing.T) {
	t.Parallel()
	p, other := start(t, Options{}), start(t, Options{})
	if stats := p.Calls(CallStatus); stats != (CallStats{}) {
		t.Fatalf("before any call: %+v", stats)
	}
	c := dial(t, p)
	begin := time.Now()
	c.mustBeHealthy(t, p)
	first := p.Calls(CallStatus).First
	c.mustBeHealthy(t, p)
	// Calls that are refused or end badly count too.
	p.mustSet(t, Fault{Name: FaultRPCError, Args: []string{"Unavailable"}})
	_, err := c.status(t)
	mustFail(t, err, codes.Unavailable, "injected error")

	for call, want := range map[Call]int64{CallStatus: 3, CallEncrypt: 2, CallDecrypt: 2, CallHealth: 2} {
		stats := p.Calls(call)
		if stats.Count != want {
			t.Errorf("%s: counted %d, want %d", call, stats.Count, want)
		}
		if stats.First.Before(begin) || !stats.First.Before(stats.Latest) || stats.Latest.After(time.Now()) {
			t.Errorf("%s: first %s, latest %s, begun %s", call, stats.First, stats.Latest, begin)
		}
		if stats := other.Calls(call); stats.Count != 0 {
			t.Errorf("%s: the other plugin counted %d", call, stats.Count)
		}
	}
	if again := p.Calls(CallStatus).First; again != first {
		t.Errorf("first call at %s, then at %s", first, again)
	}
	if got := p.State().Connections; got != (ConnectionStats{Accepted: 1, Open: 1}) {
		t.Errorf("connections: %+v", got)
	}
	p.ResetCounters()
	if stats := p.Calls(CallStatus); stats != (CallStats{}) {
		t.Errorf("after the reset: %+v", stats)
	}
}

func TestWaitForCallsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.WaitForCalls(ctx, CallStatus, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsHungCallsAndRemovesTheSocket(t *testing.T) {
	t.Parallel()
	p := start(t, Options{Faults: []Fault{{Name: FaultHang}}})
	c := dial(t, p)
	hung := make(chan error, 1)
	go func() {
		_, err := c.status(t)
		hung <- err
	}()
	if err := p.WaitForCalls(soon(t), CallStatus, 1); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("Close took %s", took)
	}
	mustFail(t, <-hung, codes.Unavailable, "")
	if _, err := os.Lstat(string(p.socket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's file: %v", err)
	}
	if err := p.SetFault(Fault{Name: FaultHang}); err == nil {
		t.Error("a closed plugin took a fault")
	}
	if err := p.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestCloseOfACrashedPluginRemovesWhatItLeft(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	if err := p.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(string(p.socket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's file: %v", err)
	}
}

func TestFaultsOfTheStateDirectoryAreInForceFromTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, FaultsFile)
	if err := os.WriteFile(file, []byte("unhealthy vault is sealed\nrefuse-decrypt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, Options{StateDir: dir})
	answer, err := dial(t, p).status(t)
	if err != nil || answer.Healthz != "vault is sealed" {
		t.Fatalf("Status: %v, %v", answer, err)
	}
	if got := len(p.State().Faults); got != 2 {
		t.Fatalf("%d faults, want 2", got)
	}
	if err := os.WriteFile(file, []byte("no-such-fault\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Options{StateDir: dir, Endpoint: "unix://" + filepath.Join(socketDir(t), "kms.sock")}); err == nil {
		t.Fatal("a file with a mistake is accepted")
	}
}
