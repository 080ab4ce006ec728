package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// generous is a timeout that a successful probe never reaches.
const generous = 20 * time.Second

// short is the timeout of probes that should time out.
const short = 300 * time.Millisecond

func writer(timeout time.Duration) Settings { return Settings{Timeout: timeout, Bound: 4 * timeout} }

// ask probes once.
func ask(t *testing.T, p *Plugin, s Settings) Result {
	t.Helper()
	return p.Probe(t.Context(), s)
}

// healthy probes once, and returns the key_id. Any result but healthy ends the test.
func healthy(t *testing.T, p *Plugin) (keyID string) {
	t.Helper()
	r := ask(t, p, writer(generous))
	if r.Status != contract.Healthy || r.NotProbed != "" {
		t.Fatalf("got %+v", r)
	}
	return r.KEKID
}

// check probes once and makes a round trip, and returns the worse of the two verdicts.
func check(t *testing.T, p *Plugin, s Settings) Result {
	t.Helper()
	r := ask(t, p, s)
	if trip := p.RoundTrip(t.Context(), s, r.KEKID, nil); r.Status == contract.Healthy && trip.Made {
		r.Status, r.Reason, r.Detail = trip.Status, trip.Reason, trip.Detail
	}
	return r
}

// start runs a real plugin on a real socket.
func start(t *testing.T, faults ...string) *kmsplugin.Plugin {
	t.Helper()
	dir := program.SocketDir(t)
	o := kmsplugin.Options{Endpoint: "unix://" + filepath.Join(dir, "kms.sock"), StateDir: filepath.Join(dir, "state")}
	for _, line := range faults {
		o.Faults = append(o.Faults, fault(t, line))
	}
	p := kmsplugin.StartForTest(t, o)
	return p
}

func fault(t *testing.T, line string) kmsplugin.Fault {
	t.Helper()
	f, err := kmsplugin.ParseFault(line)
	must.Succeed(t, err)
	return f
}

func set(t *testing.T, p *kmsplugin.Plugin, line string) {
	t.Helper()
	must.Succeed(t, p.SetFault(fault(t, line)))
}

// probed returns the Plugin under test, which is closed after the test.
func probed(t *testing.T, endpoint string) *Plugin {
	t.Helper()
	address, err := v1alpha1.SocketAddress(endpoint)
	must.Succeed(t, err)
	p := NewPlugin(address)
	t.Cleanup(p.Close)
	return p
}

// startProbed runs a real plugin, and returns the Plugin under test, too.
func startProbed(t *testing.T, faults ...string) (*kmsplugin.Plugin, *Plugin) {
	t.Helper()
	real := start(t, faults...)
	return real, probed(t, real.Endpoint())
}

// faults are faults of the development plugin, one a line, and the verdict with each. trip: only a round trip finds it.
var faults = map[string]struct {
	trip    bool
	timeout time.Duration
	status  contract.Status
	reason  contract.Reason
	detail  string
	noKey   bool
}{
	"unhealthy vault is sealed":     {status: contract.Unhealthy, reason: contract.ReportedUnhealthy, detail: `healthz is "vault is sealed", not "ok"`},
	"rpc-error Internal no luck":    {status: contract.Error, reason: contract.ReportedUnhealthy, detail: "Status: Internal: no luck", noKey: true},
	"rpc-error Unknown error":       {status: contract.Error, reason: contract.ReportedUnhealthy, detail: "Status: Unknown: error (an error without a gRPC code, as of an exception: see the plugin's log)", noKey: true},
	"rpc-error Unavailable not now": {status: contract.Error, reason: contract.Unavailable, detail: "Status: Unavailable: not now", noKey: true},
	"rpc-error DeadlineExceeded x":  {status: contract.Error, reason: contract.Timeout, detail: "Status: DeadlineExceeded: x", noKey: true},
	"hang":                          {timeout: 2 * time.Second, status: contract.Error, reason: contract.Timeout, detail: "Status: no answer within 2s; gRPC health is answered, so the process works: it probably waits for its KMS, or for a free worker. For the cause see the plugin's log, or run kms-health-reporter --once in the reporter's pod with a longer timeout", noKey: true},
	"hang all":                      {timeout: short, status: contract.Error, reason: contract.Timeout, detail: "Status: no answer within 300ms; gRPC health gets no answer either: the process hangs", noKey: true},
	"slow 30s":                      {timeout: short, status: contract.Error, reason: contract.Timeout, detail: "Status: no answer within 300ms", noKey: true},
	"slow 50ms":                     {status: contract.Healthy},
	"key-id other":                  {status: contract.Healthy},
	"unhealthy " + strings.Repeat("x", 70<<10): {status: contract.Unhealthy, reason: contract.ReportedUnhealthy, detail: `healthz is "xxxxxxxx`},
	"padded-answer":        {status: contract.Healthy},
	"padded-answer 300000": {status: contract.Error, reason: contract.ProtocolViolation, detail: "received message larger than max", noKey: true},
	"huge-headers 70000":   {status: contract.Error, reason: contract.ReportedUnhealthy, detail: "its headers may be larger than 65536 bytes", noKey: true},
	"huge-headers":         {status: contract.Healthy},
	// kubernetes-sigs/aws-encryption-provider issue 139: the right to decrypt was revoked.
	"refuse-encrypt":               {trip: true, status: contract.Unhealthy, reason: contract.PermissionDenied, detail: "Encrypt: PermissionDenied: "},
	"refuse-decrypt":               {trip: true, status: contract.Unhealthy, reason: contract.PermissionDenied, detail: "Decrypt: PermissionDenied: "},
	"refuse-encrypt Unavailable x": {trip: true, status: contract.Error, reason: contract.Unavailable, detail: "Encrypt: Unavailable: x"},
	"refuse-encrypt Canceled x":    {trip: true, status: contract.Unhealthy, reason: contract.ReportedUnhealthy, detail: "Encrypt: Canceled: x"},
	"rpc-error Canceled x":         {status: contract.Error, reason: contract.ReportedUnhealthy, detail: "Status: Canceled: x", noKey: true},
	"wrong-decrypt":                {trip: true, status: contract.Unhealthy, reason: contract.RoundTripMismatch, detail: "the answer to Decrypt is 32 bytes that differ from the 32 that were encrypted"},
	"short-decrypt":                {trip: true, status: contract.Unhealthy, reason: contract.RoundTripMismatch, detail: "the answer to Decrypt is 31 bytes that differ from the 32 that were encrypted"},
	"replaced-key":                 {trip: true, status: contract.Healthy}, // only a kept sample detects it
	"hang encrypt":                 {trip: true, timeout: 2 * time.Second, status: contract.Unhealthy, reason: contract.Timeout, detail: "Encrypt: no answer within 2s"},
	"encrypt-key-id other":         {trip: true, status: contract.Unhealthy, reason: contract.ProtocolViolation, detail: `the answer to Encrypt names key_id "other", that to Status "`},
	// The same project's issues 74 and 26: after a restart the socket's file was left behind.
	"crash": {status: contract.Error, reason: contract.ConnectFailed, detail: ": connection refused: nothing listens on it", noKey: true},
	// Open connections are served on, but the next kube-apiserver cannot connect.
	"remove-socket": {status: contract.Error, reason: contract.SocketMissing, detail: noSocketFile, noKey: true},
}

func TestEachFaultGetsItsVerdictAndRecoveryIsDetectedByTheNextProbe(t *testing.T) {
	for line, tt := range faults {
		t.Run(line, func(t *testing.T) {
			real, plugin := startProbed(t)
			settings := Settings{Timeout: generous, Bound: time.Minute}
			find := ask
			if tt.trip {
				find = check
			}
			if r := find(t, plugin, settings); r.Status != contract.Healthy || r.Detail != "" || r.KEKID != real.KeyID() {
				t.Fatalf("before the fault: %+v", r)
			}

			set(t, real, line)
			if tt.timeout != 0 {
				settings.Timeout = tt.timeout
			}
			r := find(t, plugin, settings)
			if line == "crash" {
				// The first probe may use the old connection as it breaks, and report that.
				if r.Status != contract.Error {
					t.Errorf("at the crash: %+v", r)
				}
				r = find(t, plugin, settings)
			}
			if r.Status != tt.status || r.Reason != tt.reason || !strings.Contains(r.Detail, tt.detail) || (r.Detail == "") != (tt.detail == "") || (r.KEKID == "") != tt.noKey {
				t.Errorf("with the fault: %+v", r)
			}

			must.Succeed(t, real.ClearFaults())
			settings.Timeout = generous
			if r := find(t, plugin, settings); r.Status != contract.Healthy || r.Reason != "" {
				t.Errorf("after the fault: %+v", r)
			}
		})
	}
}

// The timeout applies to each call, as kube-apiserver's does.
func TestTimeoutIsForEachCall(t *testing.T) {
	real := start(t, "slow 1200ms all")
	began := time.Now()
	r := check(t, probed(t, real.Endpoint()), Settings{Timeout: 3 * time.Second, Bound: time.Minute})
	if took := time.Since(began); r.Status != contract.Healthy || took < 3*time.Second {
		t.Errorf("%+v after %s", r, took)
	}
}

// A plugin should give up shortly before its caller, and return the reason.
func TestTextOfAPluginThatGivesUpBeforeTheTimeoutIsReported(t *testing.T) {
	t.Parallel() // it waits
	real := start(t, "slow 2800ms", "rpc-error DeadlineExceeded the vault did not answer")
	r := ask(t, probed(t, real.Endpoint()), writer(3*time.Second))
	want := "Status: DeadlineExceeded: the vault did not answer; gRPC health is answered"
	if r.Reason != contract.Timeout || !strings.HasPrefix(r.Detail, want) {
		t.Errorf("%+v", r)
	}
}

// If a plugin exits during a call, its state after that is reported.
func TestPluginThatEndsDuringStatusIsReportedAsItIsThen(t *testing.T) {
	real, plugin := startProbed(t)
	healthy(t, plugin)
	set(t, real, "hang")
	done := make(chan Result, 1)
	go func() { done <- plugin.Probe(context.Background(), writer(generous)) }()
	must.Succeed(t, real.WaitForCalls(t.Context(), kmsplugin.CallStatus, 2))
	must.Succeed(t, real.Close())
	if r := <-done; r.Reason != contract.SocketMissing || !strings.HasSuffix(r.Detail, ": no such file or directory: "+noSocketFile) {
		t.Errorf("%+v", r)
	}
}

// An entry without a status would make the whole message unreadable. FAILED_PRECONDITION names no cause:
// openbao-kubernetes-kms returns it for every problem in Status.
func TestEveryCodeIsAVerdict(t *testing.T) {
	want := map[codes.Code]contract.Reason{
		codes.DeadlineExceeded: contract.Timeout, codes.Unauthenticated: contract.Unauthenticated, codes.PermissionDenied: contract.PermissionDenied,
		codes.ResourceExhausted: contract.Throttled, codes.Unavailable: contract.Unavailable, codes.Unimplemented: contract.ProtocolViolation,
		codes.NotFound: contract.KeyUnavailable,
	}
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		reason, kind := cmp.Or(want[code], contract.ReportedUnhealthy), contract.Unhealthy
		if code == codes.Unavailable {
			kind = contract.Error
		}
		if v := failedCall("Encrypt", status.Error(code, "x")); v.status != kind || v.reason != reason {
			t.Errorf("%s: %+v", code, v)
		}
	}
}

func TestOneConnectionServesManyProbes(t *testing.T) {
	real, plugin := startProbed(t)
	for range 10 {
		healthy(t, plugin)
	}
	if got := real.Calls(kmsplugin.CallHealth).Count; got != 0 {
		t.Errorf("%d calls of gRPC health without a timeout", got)
	}
	set(t, real, "hang")
	for range 3 { // a timeout does not cause a new connection
		ask(t, plugin, writer(short))
	}
	if c := real.State().Connections; c.Accepted != 1 {
		t.Errorf("%d connections", c.Accepted)
	}
	for _, call := range []kmsplugin.Call{kmsplugin.CallEncrypt, kmsplugin.CallDecrypt} {
		if got := real.Calls(call).Count; got != 0 {
			t.Errorf("%d %s calls, although only Status is configured", got, call)
		}
	}
}

// A restarted kube-apiserver connects by the path, even if the former process still holds its connections.
func TestProbeFollowsThePathToASuccessor(t *testing.T) {
	old := start(t)
	plugin := probed(t, old.Endpoint())
	if r := ask(t, plugin, writer(generous)); r.Status != contract.Healthy || r.Restarted {
		t.Fatalf("%+v", r)
	}
	socket := strings.TrimPrefix(old.Endpoint(), "unix://")
	must.Succeed(t, os.Rename(socket, socket+".old"))
	next := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: old.Endpoint(), StateDir: t.TempDir(),
		Faults: []kmsplugin.Fault{fault(t, "unhealthy the successor is sealed")}})
	if r := ask(t, plugin, writer(generous)); r.Status != contract.Unhealthy || !r.Restarted ||
		!strings.Contains(r.Detail, "the successor is sealed") {
		t.Errorf("%+v", r)
	}
	// With this mode the API server's user could not connect, so the probe must connect again.
	must.Succeed(t, os.Chmod(socket, 0))
	accepted := next.State().Connections.Accepted
	if ask(t, plugin, writer(generous)); os.Geteuid() == 0 && next.State().Connections.Accepted != accepted+1 {
		t.Error("a socket of another mode is not connected to")
	}
}

// A process that hangs keeps its socket, and another one takes over the path.
func TestProbeLeavesAQueueThatThePathNoLongerLeadsTo(t *testing.T) {
	socket := filepath.Join(program.SocketDir(t), "kms.sock")
	hung, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	defer hung.Close()
	plugin := probed(t, "unix://"+socket)
	if r := ask(t, plugin, writer(short)); r.Reason != contract.Timeout {
		t.Fatalf("%+v", r)
	}
	must.Succeed(t, os.Rename(socket, socket+".old"))
	kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + socket, StateDir: t.TempDir()})
	healthy(t, plugin)
}

func TestPathWithoutAPluginIsReportedAtOnceWithTheReason(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	disk.Write(t, file, nil)
	must.Succeed(t, errors.Join(os.Chmod(dir, 0o700), os.Chmod(file, 0o600)))
	for path, want := range map[string]struct {
		reason contract.Reason
		detail string
	}{
		dir + "/none.sock":     {contract.SocketMissing, ": no such file or directory: " + noSocketFile},
		dir + "/none/kms.sock": {contract.SocketMissing, ": no such file or directory: its folder does not exist: check the endpoint, and the volume that has the socket"},
		file:                   {contract.ConnectFailed, ": connection refused: it is not a socket, its mode is -rw-------"},
		dir:                    {contract.ConnectFailed, ": connection refused: it is not a socket, its mode is drwx------"},
	} {
		plugin := probed(t, "unix://"+path)
		for range 3 { // later probes must not wait for a backoff
			began := time.Now()
			r := ask(t, plugin, writer(generous))
			if r.Status != contract.Error || r.Reason != want.reason || r.Detail != "cannot connect to "+path+want.detail || r.Gone {
				t.Fatalf("%+v", r)
			}
			if took := time.Since(began); took > generous/2 {
				t.Errorf("took %s", took)
			}
		}
	}
}

// While a call waits, gRPC reconnects without a backoff: some thousand times, or with one processor until the timeout.
func TestPluginThatEndsEachConnectionIsAnError(t *testing.T) {
	socket := program.SocketDir(t) + "/kms.sock"
	listener, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // SETTINGS and GOAWAY of HTTP/2 (RFC 9113)
				_, _ = io.WriteString(conn, "\x00\x00\x00\x04\x00\x00\x00\x00\x00"+
					"\x00\x00\x08\x07\x00\x00\x00\x00\x00"+"\x00\x00\x00\x00\x00\x00\x00\x00")
				_, _ = io.Copy(io.Discard, conn) // reads until the client closes the connection
				_ = conn.Close()
			}()
		}
	}()
	plugin := probed(t, "unix://"+socket)
	timeout, want := generous, contract.Unavailable // a busy machine needs seconds for the connections
	if runtime.GOMAXPROCS(0) == 1 {
		timeout, want = short, contract.Timeout
	}
	r := ask(t, plugin, Settings{Timeout: timeout})
	if r.Status != contract.Error || r.Reason != want {
		t.Errorf("%+v", r)
	}
}

// gRPC returns io.EOF in one of some hundred runs of the test above.
func TestRequestThatWasNotSentHasNoAnswer(t *testing.T) {
	method := func(context.Context, *kmsapi.StatusRequest, ...grpc.CallOption) (*kmsapi.StatusResponse, error) {
		return nil, io.EOF
	}
	_, got := call(t.Context(), generous, "Status", method, &kmsapi.StatusRequest{})
	want := verdict{status: contract.Error, reason: contract.Unavailable, lost: true,
		detail: "Status: Unavailable: the connection ended before the request was sent"}
	if got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAbstractSocket(t *testing.T) {
	name := fmt.Sprintf("unix:///@kms-health-probe-%d", os.Getpid())
	kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: name, StateDir: t.TempDir()})
	healthy(t, probed(t, name))
}

func TestInEmptyDir(t *testing.T) {
	const mounts = `1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 254:0 /var/lib/kubelet/pods/9f/volumes/kubernetes.io~empty-dir/kms-sockets//deleted /var/run/kmsplugin ro,relatime - ext4 /dev/vda rw
3 1 254:0 /var/run/kmsplugin /var/run/kmsplugins ro - ext4 /dev/vda rw
4 1 0:50 / /memory ro - tmpfs tmpfs rw
5 1 254:0 /var/lib/kubelet/pods/9f/volumes/kubernetes.io~empty-dir/own /writable rw - ext4 /dev/vda rw
6 5 254:0 /run/kms//deleted /writable/kms ro - ext4 /dev/vda rw
short line
`
	for folder, want := range map[string]bool{
		"/var/run/kmsplugin":        true,
		"/var/run/kmsplugin/deeper": true,
		"/var/run/kmsplugins":       false,
		"/memory":                   false,
		"/writable/kms":             false, // a host folder, mounted in a volume of the reporter's pod
		"/":                         false,
		"/elsewhere":                false,
	} {
		if got := inEmptyDir(mounts, folder); got != want {
			t.Errorf("%s: %t", folder, got)
		}
	}
	if inEmptyDir("", "/var/run/kmsplugin") {
		t.Error("no mounts")
	}
}
