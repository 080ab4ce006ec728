package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/health"
)

const (
	// buffer is the connection's read and write buffer, in bytes: answers are small.
	buffer = 4 << 10

	// maxAnswer and maxHeaders bound one answer, and its headers or trailers with an
	// error's text, in bytes. kube-apiserver has gRPC's own bounds, 4 and 16 MiB; but what
	// gRPC decodes of them takes a hundred times as much memory, beside an API server. An
	// honest answer is under 2 KiB.
	maxAnswer  = 256 << 10
	maxHeaders = 64 << 10

	// handshake bounds the wait for a plugin that listens, and does not accept: it is
	// stopped, or stuck. Each attempt stays in its queue, which kube-apiserver needs
	// too; so there is no new one for as long as kube-apiserver's backoff may last.
	handshake = 2 * time.Minute
)

// Settings are how a plugin is probed. They may change while its connection
// stays.
type Settings struct {
	// Timeout bounds each call, as kube-apiserver's bounds each of its own.
	Timeout time.Duration
	// Late is when a call to Status ends that goes on after the verdict that it timed
	// out, so that a late answer can be quoted. Counted from the call's beginning; less
	// than half a second after the Timeout is not at all.
	Late time.Duration
	// Writes is true for a plugin that the API server encrypts with.
	Writes bool
	// GRPCHealth also asks the standard gRPC health service.
	GRPCHealth bool
}

// Plugin is one KMS plugin. Neither Probe nor RoundTrip may be called concurrently
// with itself; they may with each other.
type Plugin struct {
	address string
	mounts  func() (string, error) // the mountinfo; tests have their own

	mu     sync.Mutex // guards the connection
	conn   *grpc.ClientConn
	dialer *dialer
	closed bool

	connections atomic.Int64 // how many there were

	// Of Probe.
	version   string // of the first valid answer
	diagnosis string // of the last timeout, while probes time out

	samples samples // of RoundTrip
}

// NewPlugin returns the plugin behind a unix socket, given by its path or, for
// an abstract socket, its name after an @. It connects at the first probe.
func NewPlugin(address string) *Plugin {
	return &Plugin{address: address, mounts: func() (string, error) {
		text, err := os.ReadFile("/proc/self/mountinfo")
		return string(text), err
	}}
}

// Close closes the connection, and ends what is under way on it. It does not wait for
// the plugin.
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

// Probe asks the plugin once, and calls report with what it found: once, as soon as
// there is a verdict; and once more after a timeout, with its diagnosis. It returns after
// the last of them: after four times the Timeout, or Late, at the latest.
func (p *Plugin) Probe(ctx context.Context, s Settings, report func(Result)) {
	began := time.Now()
	finish := func(keyID string, v *verdict, err error) Result {
		r := p.result(keyID, v, err)
		r.At = time.Now().Round(0) // by the wall clock: the other one stands still in a suspend
		r.Took = time.Since(began)
		return r
	}
	for attempt := range 2 {
		conn, err := p.connect()
		if err != nil {
			report(finish("", nil, err))
			return
		}
		late := p.startLate(ctx, conn, s, func(err error, more bool) {
			r := finish("", nil, err)
			r.More = more
			report(r)
		})
		answer, err := kmsapi.NewKeyManagementServiceClient(conn).Status(withTimeout(ctx, late.limit()), &kmsapi.StatusRequest{})
		if late.ended(answer, err) {
			return
		}
		p.diagnosis = ""
		if err != nil {
			// A connection that worked broke during the call, because the plugin ended: what
			// is there now is what is to be reported.
			if attempt == 0 && p.broke(err) {
				continue
			}
			report(finish("", nil, err))
			return
		}
		keyID, version, v := judge(answer, p.version)
		p.version = version
		if v == nil && s.GRPCHealth {
			v, err = checkHealthService(withTimeout(ctx, s.Timeout), conn)
		}
		report(finish(keyID, v, err))
		return
	}
}

// broke says whether a call failed because an established connection ended, other than
// by our own doing.
func (p *Plugin) broke(err error) bool {
	failed, stalled := p.connectionFailure()
	return status.Code(err) == codes.Unavailable && failed == nil && !stalled && !p.connected()
}

// connected says whether there is a connection to the plugin.
func (p *Plugin) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialer != nil && p.dialer.connected()
}

// result turns what was found into a Result without its times: a verdict on an answer
// (nil: a good one), or the error of not getting one.
func (p *Plugin) result(keyID string, v *verdict, err error) Result {
	r := Result{Status: health.Healthy, KEKID: keyID, Answered: answered(err), Connection: int(p.connections.Load())}
	if err == nil {
		if v != nil {
			r.Status, r.Reason, r.Detail = v.status, v.reason, health.CleanDetail(v.detail)
		}
		return r
	}
	r.Status, r.Reason = health.Error, health.ReportedUnhealthy
	var call *callError
	if errors.As(err, &call) {
		r.Reason = call.reason()
	}
	if call != nil && call.stalled {
		return Result{NotProbed: fmt.Sprintf("the reporter itself did not run for a time: %v", err)}
	}
	failed, stalled := p.connectionFailure()
	lost := call == nil || status.Code(err) == codes.Unavailable
	switch {
	case lost && failed != nil:
		if own(failed) {
			return Result{NotProbed: failed.Error()}
		}
		absence := p.absence()
		if absence.lacking != nil {
			return Result{NotProbed: absence.lacking.Error()}
		}
		if absence.gone {
			return Result{Gone: true, Detail: absence.why}
		}
		r.Reason = health.ConnectFailed
		if absence.missing {
			r.Reason = health.SocketMissing
		}
		err = fmt.Errorf("cannot connect to %s: %w%s", p.address, failed, p.hint(failed, absence))
	case lost && stalled:
		r.Reason = health.Timeout
		err = fmt.Errorf("no answer to Status: the plugin has not read its socket for %s", writeTimeout)
	}
	r.Detail = health.CleanDetail(err.Error())
	return r
}

// hint says what the kernel's word for a failed connection means here.
func (p *Plugin) hint(failed error, absence absence) string {
	info, err := os.Stat(p.address)
	switch {
	case absence.why != "":
		return ": " + absence.why
	case err == nil && info.Mode().Type() != os.ModeSocket:
		return fmt.Sprintf(": it is not a socket (mode %s)", info.Mode())
	case errors.Is(failed, syscall.ECONNREFUSED):
		return ": nothing listens on it (a plugin that was killed leaves its socket's file behind)"
	case errors.Is(failed, syscall.EAGAIN):
		return ": its queue of connections is full: the plugin does not accept any"
	case errors.Is(failed, syscall.EACCES):
		return fmt.Sprintf(" for uid %d", os.Geteuid())
	}
	return ""
}

// connectionFailure returns why the last attempt to connect failed, nil when it did
// not; and whether the connection broke because the plugin did not read.
func (p *Plugin) connectionFailure() (failed error, stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dialer == nil {
		return nil, false
	}
	return p.dialer.failure(), p.dialer.stalled()
}

// connect returns the connection, and makes one where there is none, or where the last
// attempt failed. Such a one would first sit out its backoff and meanwhile answer every
// call with the old failure; a new one tries at once, and its first call waits for the
// outcome. A working connection is kept for good, and so is one that the plugin is yet
// to accept, or that the kernel is yet to look up: on a file system that hangs each
// attempt costs a thread, and none can be ended.
func (p *Plugin) connect() (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if p.conn != nil {
		switch p.conn.GetState() {
		case connectivity.Ready, connectivity.Idle:
			return p.conn, nil
		case connectivity.Connecting:
			if p.dialer.connected() || p.dialer.dialling() {
				return p.conn, nil
			}
		}
		closeConnection(p.conn, p.dialer)
		p.conn = nil
	}
	dialer := &dialer{address: p.address, connections: &p.connections}
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(dialer.dial),
		grpc.WithAuthority("localhost"), // as kube-apiserver sends it
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: handshake}),
		grpc.WithIdleTimeout(0), // an hour's interval must not reconnect
		grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(limit),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithReadBufferSize(buffer),
		grpc.WithWriteBufferSize(buffer),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare connection: %w", err)
	}
	p.conn, p.dialer = conn, dialer
	return conn, nil
}
