// Package probe checks the health of a KMS v2 plugin.
//
// A Plugin holds one gRPC connection over a unix socket. Probe calls Status, and RoundTrip encrypts and decrypts a
// sample. Both take bounded time and return a result, never an error: a failure to get an answer is a result too.
//
// A plugin may send any answer at any time, or stop reading: only its own probe is affected. Answers are bounded in
// size, writes have a deadline, and closing does not wait for the plugin.
package probe

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // a plugin may compress its answers: kube-apiserver reads that
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	buffer = 4 << 10 // bytes to read and to write; answers are small

	// window is the window of HTTP/2's flow control, in bytes. By default gRPC sends a ping with each
	// answer to measure the plugin's rate, and may enlarge the window to 16 MiB.
	window = 64 << 10

	// maxAnswer and maxHeaders bound one answer, and its headers or trailers with an error's text, in bytes.
	// kube-apiserver has gRPC's own bounds, 4 and 16 MiB. Decoded, those can take a hundred times as much memory, on an
	// API server's node. A normal answer is under 2 KiB.
	maxAnswer  = 256 << 10
	maxHeaders = 64 << 10

	// handshake bounds the wait for a plugin that listens but does not accept, since it is stopped or hangs. Each
	// attempt stays in its accept queue, which kube-apiserver needs too; so the next one is made only after the maximum
	// of kube-apiserver's backoff.
	handshake = 2 * time.Minute
)

// Settings are how a plugin is probed. They may change without a new connection.
type Settings struct {
	Timeout time.Duration // of each call, as the provider's timeout in kube-apiserver
	Bound   time.Duration // of a round trip, at least three Timeouts
}

// Result is the result of one probe.
type Result struct {
	Status   contract.Status // the verdict, as in the contract
	Reason   contract.Reason
	Detail   string
	KEKID    string // the plugin's key id, if it returned a valid one
	Answered bool   // the plugin's process answered Status, healthy or not
	// Restarted: the socket's file was replaced since the last probe, even if no probe failed meanwhile.
	Restarted bool
	At        time.Time // when the probe ended, by the wall clock
	Took      time.Duration

	// Gone: there is nothing to observe, since the socket's folder was deleted with its pod. Only Detail and the times
	// are set then.
	Gone bool
	// NotProbed is why the reporter itself could not probe the plugin: it has no descriptors or memory left, did not
	// run, or was denied to connect as another user than the API server's. Only the times are set then.
	NotProbed string
}

// verdict is a status with its reason, and a detail for people. nil: healthy.
type verdict struct {
	status contract.Status
	reason contract.Reason
	detail string
	// The fields below are set for a failed call only.
	lost     bool // the gRPC code can also mean that the connection was lost or closed
	timedOut bool // the timeout of the call ended it
	// stalled: this process did not run for so long (a frozen cgroup, a paused machine, no CPU time) that the answer
	// may have arrived in time.
	stalled bool
}

// unhealthy is the verdict on a plugin that answered, but is not healthy.
func unhealthy(reason contract.Reason, detail string) *verdict {
	return &verdict{status: contract.Unhealthy, reason: reason, detail: detail}
}

// answered reports whether the verdict came from the plugin's process, not from the connection or a timeout.
func (v *verdict) answered() bool { return v == nil || !v.timedOut && !v.lost }

// Plugin is one KMS plugin. Probe and RoundTrip may be called concurrently, but neither with itself.
type Plugin struct {
	address string
	mounts  func() (string, error) // the mountinfo; tests replace it

	mu     sync.Mutex // guards the connection
	conn   *grpc.ClientConn
	dialer *dialer
	closed bool

	connections atomic.Int64 // how many were made
	sockets     sockets
	version     string // of the first valid answer; used by Probe only
}

// NewPlugin returns the plugin behind a path, or @ and the name of an abstract socket. It connects at the first probe.
func NewPlugin(address string) *Plugin {
	return &Plugin{address: address, mounts: func() (string, error) {
		text, err := os.ReadFile("/proc/self/mountinfo")
		return string(text), err
	}}
}

// Close closes the connection, and ends the calls on it. It does not wait for the plugin.
func (p *Plugin) Close() {
	p.mu.Lock()
	conn, dialer := p.conn, p.dialer
	p.conn, p.dialer, p.closed = nil, nil, true
	p.mu.Unlock()
	closeConnection(conn, dialer)
}

func closeConnection(conn *grpc.ClientConn, dialer *dialer) {
	if conn != nil {
		dialer.abort()
		_ = conn.Close() // fails only when it is closed already
	}
}

// Probe checks the plugin once, and returns the result after at most four times the Timeout, if this process runs.
func (p *Plugin) Probe(ctx context.Context, s Settings) Result {
	began := time.Now()
	r := p.probe(ctx, s)
	r.At = time.Now().Round(0) // by the wall clock: the monotonic clock stops during a suspend
	r.Took = time.Since(began)
	r.Restarted = p.sockets.replaced.Swap(false)
	return r
}

func (p *Plugin) probe(ctx context.Context, s Settings) Result {
	leads := p.sockets.look(p.address, s.Timeout)
	for retried := false; ; retried = true {
		conn, err := p.connect(leads)
		if err != nil {
			return Result{NotProbed: err.Error()}
		}
		kms := kmsapi.NewKeyManagementServiceClient(conn)
		answer, v := call(ctx, s.Timeout, "Status", kms.Status, &kmsapi.StatusRequest{})
		if v == nil {
			keyID, version, v := judge(answer, p.version)
			p.version = version
			return p.result(keyID, v)
		}
		if c := p.state(); v.lost && !retried && c.failed == nil && !c.stalled && !c.connected {
			continue // an established connection broke, because the plugin exited: report the current state
		}
		v.status = contract.Error
		r := p.result("", v)
		if r.Detail != "" && !r.Gone {
			r.Detail = contract.CleanDetail(r.Detail + diagnosis(ctx, conn, s.Timeout, v))
		}
		return r
	}
}

func (p *Plugin) state() connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dialer == nil {
		return connection{}
	}
	return p.dialer.state()
}

// result returns a Result without its times, by a verdict.
func (p *Plugin) result(keyID string, v *verdict) Result {
	state := p.state()
	switch {
	case v == nil:
		return Result{Status: contract.Healthy, KEKID: keyID, Answered: true}
	case v.stalled:
		return Result{NotProbed: "the reporter itself did not run for a time: " + v.detail}
	case v.lost && state.failed != nil:
		return p.unreachable(state.failed)
	case v.lost && state.stalled:
		v.reason = contract.Timeout
		v.detail = fmt.Sprintf("no answer to Status: the plugin has not read its socket for %s", writeTimeout)
	}
	return Result{Status: v.status, Reason: v.reason, Detail: contract.CleanDetail(v.detail), KEKID: keyID,
		Answered: v.answered()}
}

// connect returns the connection. It makes a new one if there is none, or if the last attempt failed: gRPC would first
// wait for its backoff and meanwhile fail every call with the old error. A connection that works is kept while the path
// leads to its socket, since the next kube-apiserver connects by the path. One that the plugin has not accepted yet is
// kept unless the path leads elsewhere. One that the kernel is still making is kept, too: on a file system that hangs,
// each attempt blocks a thread and cannot be cancelled.
func (p *Plugin) connect(leads path) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if p.conn != nil {
		switch p.conn.GetState() {
		case connectivity.Ready, connectivity.Idle:
			if leads == same {
				return p.conn, nil
			}
		case connectivity.Connecting:
			if s := p.dialer.state(); s.connected && leads != moved || s.dialling {
				return p.conn, nil
			}
		}
		closeConnection(p.conn, p.dialer)
		p.conn = nil
	}
	dialer := &dialer{plugin: p}
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(dialer.dial),
		grpc.WithAuthority("localhost"), // as kube-apiserver sends it
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: handshake}),
		grpc.WithIdleTimeout(0), // an hour's interval must not reconnect
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithReadBufferSize(buffer),
		grpc.WithWriteBufferSize(buffer),
	)
	if err != nil {
		return nil, err
	}
	p.conn, p.dialer = conn, dialer
	return conn, nil
}
