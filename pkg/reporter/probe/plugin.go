package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/health"
)

const (
	// maxAnswer bounds one answer, in bytes, so that a mad plugin cannot fill
	// our memory. An honest Status answer is under 2 KiB.
	maxAnswer = 64 << 10
	// maxHeaders bounds the headers and trailers of one answer, in bytes; an
	// RPC's error text is in the trailers.
	maxHeaders = 16 << 10
	// buffer is the connection's read buffer, in bytes: answers are small.
	buffer = 4 << 10
)

// Checks are what is asked of a plugin beside Status.
type Checks struct {
	RoundTrip  bool
	GRPCHealth bool
}

// Settings are how a plugin is probed. They may change while its connection
// stays.
type Settings struct {
	// Timeout bounds one probe, all its checks together.
	Timeout time.Duration
	// Writes is true for a plugin that the API server encrypts with.
	Writes bool
	Checks Checks
}

// Plugin is one KMS plugin. Probe may not be called concurrently with itself.
type Plugin struct {
	address string
	conn    *grpc.ClientConn
	dial    *dialer
	version string      // of the first valid answer
	sealed  *ciphertext // what the plugin encrypted for us last, if ever
}

// NewPlugin returns the plugin behind a unix socket, given by its path or, for
// an abstract socket, its name after an @. It connects at the first probe.
func NewPlugin(address string) *Plugin { return &Plugin{address: address} }

// Close closes the connection. It may not be called during a Probe.
func (p *Plugin) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // fails only when it is closed already
	}
}

// Probe asks the plugin once, and always returns within the timeout.
func (p *Plugin) Probe(ctx context.Context, s Settings) Result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	keyID, err := p.check(ctx, s)
	r := Result{Status: health.Healthy, KEKID: keyID, At: time.Now()}
	r.Took = r.At.Sub(began)
	if err == nil {
		return r
	}
	if folderDeleted(p.address) {
		return Result{Gone: true, At: r.At, Took: r.Took}
	}
	r.Status, r.Detail = p.explain(err, s.Timeout, r.Took)
	return r
}

// verdictError is the finding that a plugin answered, and not well.
type verdictError struct{ error }

func (e verdictError) Unwrap() error { return e.error }

// callError is the failure of an RPC that leaves nothing to judge.
type callError struct {
	call string
	err  error
}

func (e callError) Error() string {
	state := status.Convert(e.err)
	return fmt.Sprintf("%s: %s: %s", e.call, state.Code(), state.Message())
}
func (e callError) Unwrap() error { return e.err }

func (p *Plugin) check(ctx context.Context, s Settings) (keyID string, err error) {
	if err := p.connect(); err != nil {
		return "", err
	}
	kms := kmsapi.NewKeyManagementServiceClient(p.conn)
	answer, err := kms.Status(ctx, &kmsapi.StatusRequest{})
	if err != nil {
		return "", callError{"Status", err}
	}
	keyID, p.version, err = judge(answer, p.version)
	if err != nil {
		return keyID, verdictError{err}
	}
	if s.Checks.GRPCHealth {
		if err := checkHealthService(ctx, p.conn); err != nil {
			return keyID, err
		}
	}
	if s.Checks.RoundTrip {
		if err := p.roundTrip(ctx, kms, s.Writes, keyID); err != nil {
			return keyID, err
		}
	}
	return keyID, nil
}

// connect makes a connection where there is none, or where the last attempt to
// connect failed. Such a one would first sit out its backoff and meanwhile
// answer every call with the old failure; a new one tries at once, and its first
// call waits for the outcome. A working connection is kept for good, and gRPC
// mends it by itself when the plugin restarts.
func (p *Plugin) connect() error {
	if p.conn != nil && p.conn.GetState() != connectivity.TransientFailure {
		return nil
	}
	p.Close()
	p.dial = &dialer{address: p.address}
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(p.dial.dial),
		grpc.WithAuthority("localhost"), // as kube-apiserver sends it
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0), // an hour's interval must not reconnect
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithReadBufferSize(buffer),
		grpc.WithWriteBufferSize(buffer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		return fmt.Errorf("prepare connection: %w", err)
	}
	p.conn = conn
	return nil
}

// explain turns what went wrong into a status and words for people.
func (p *Plugin) explain(err error, timeout, took time.Duration) (health.Status, string) {
	state := health.Error
	detail := err.Error()
	var verdict verdictError
	var call callError
	if errors.As(err, &verdict) {
		state = health.Unhealthy
	}
	if errors.As(err, &call) {
		switch code := status.Code(call.err); {
		case code == codes.DeadlineExceeded && took > timeout*9/10: // else it is the plugin's own answer
			detail = fmt.Sprintf("%s: no answer within %s", call.call, timeout)
		case code == codes.Unavailable:
			if failed := p.dial.failure(); failed != nil {
				detail = fmt.Sprintf("cannot connect to %s: %v", p.address, failed)
			}
		}
	}
	return state, health.CleanDetail(detail)
}

// dialer connects to a unix socket, and remembers why it last could not: gRPC
// wraps the reason in many words of its own.
type dialer struct {
	address string
	mu      sync.Mutex
	err     error
}

func (d *dialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.address)
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	return conn, err
}

// failure returns why the last attempt failed, in the kernel's words; nil when
// it did not.
func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var kernel syscall.Errno
	if errors.As(d.err, &kernel) {
		return kernel
	}
	return d.err
}
