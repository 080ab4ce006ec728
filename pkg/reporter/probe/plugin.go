package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
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
	// Timeout bounds each call, as kube-apiserver's bounds each of its own. A
	// probe makes four at most.
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
	timeout time.Duration // of the probe under way
	version string        // of the first valid answer
	sealed  *ciphertext   // what the plugin encrypted for us last, if ever
	absent  func(address string) bool
	missing time.Time // since when it is absent
}

// NewPlugin returns the plugin behind a unix socket, given by its path or, for
// an abstract socket, its name after an @. It connects at the first probe.
func NewPlugin(address string) *Plugin {
	return &Plugin{address: address, absent: podSocketMissing}
}

// Close closes the connection. It may not be called during a Probe.
func (p *Plugin) Close() {
	if p.conn != nil {
		_ = p.conn.Close() // fails only when it is closed already
	}
}

// Probe asks the plugin once.
func (p *Plugin) Probe(ctx context.Context, s Settings) Result {
	began := time.Now()
	p.timeout = s.Timeout
	keyID, err := p.check(ctx, s)
	r := Result{Status: health.Healthy, KEKID: keyID, At: time.Now()}
	r.Took = r.At.Sub(began)
	if err == nil {
		p.missing = time.Time{}
		return r
	}
	if why := p.gone(r.At); why != "" {
		return Result{Gone: true, Detail: why, At: r.At, Took: r.Took}
	}
	r.Status, r.Detail = p.explain(err)
	return r
}

// MissingGrace is for how long a socket that is not there, in a volume of a pod, is no
// error: a little longer than OpenShift gives an API server to end, 135 seconds.
const MissingGrace = 150 * time.Second

// gone says why there is nothing to observe, and nothing when there is.
func (p *Plugin) gone(now time.Time) string {
	if folderDeleted(p.address) {
		return "its folder was deleted, with the pod that it belonged to"
	}
	if !p.absent(p.address) {
		p.missing = time.Time{}
		return ""
	}
	if p.missing.IsZero() {
		p.missing = now
	}
	if now.Sub(p.missing) >= MissingGrace {
		return ""
	}
	return "it is not there: its plugin is about to start, or its pod to end"
}

// SocketExists says whether a plugin that was Gone can be asked again.
func (p *Plugin) SocketExists() bool {
	_, err := os.Lstat(p.address)
	return err == nil || strings.HasPrefix(p.address, "@")
}

// verdictError is the finding that a plugin answered, and not well.
type verdictError struct{ error }

func (e verdictError) Unwrap() error { return e.error }

// callError is the failure of a call, which leaves nothing to judge by itself.
type callError struct {
	call   string
	silent time.Duration // the timeout, where that is what failed it
	err    error
}

func (e callError) Error() string {
	if e.silent != 0 {
		return fmt.Sprintf("%s: no answer within %s", e.call, e.silent)
	}
	state := status.Convert(e.err)
	return fmt.Sprintf("%s: %s: %s", e.call, state.Code(), state.Message())
}
func (e callError) Unwrap() error { return e.err }

// limit is the interceptor of every call: it bounds it, and says which call it
// was that failed.
func (p *Plugin) limit(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	began := time.Now()
	err := invoke(ctx, method, request, reply, conn, options...)
	if err == nil {
		return nil
	}
	failed := callError{call: path.Base(method), err: err}
	if method == grpc_health_v1.Health_Check_FullMethodName {
		failed.call = "gRPC health"
	}
	// A plugin may answer DeadlineExceeded, of a deadline of its own; and our
	// own may reach us by way of the plugin, a moment early.
	if status.Code(err) == codes.DeadlineExceeded && time.Since(began) > p.timeout*9/10 {
		failed.silent = p.timeout
	}
	return failed
}

func (p *Plugin) check(ctx context.Context, s Settings) (keyID string, err error) {
	if err := p.connect(); err != nil {
		return "", err
	}
	kms := kmsapi.NewKeyManagementServiceClient(p.conn)
	answer, err := kms.Status(ctx, &kmsapi.StatusRequest{})
	if err != nil {
		return "", err
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
// connect failed, or began before this probe and may yet fail for what is over.
// Such a one would first sit out its backoff and meanwhile answer every call with
// the old failure; a new one tries at once, and its first call waits for the
// outcome. A working connection is kept for good.
func (p *Plugin) connect() error {
	if p.conn != nil {
		if s := p.conn.GetState(); s == connectivity.Ready || s == connectivity.Idle {
			return nil
		}
	}
	p.Close()
	p.dial = &dialer{address: p.address}
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(p.dial.dial),
		grpc.WithAuthority("localhost"), // as kube-apiserver sends it
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0), // an hour's interval must not reconnect
		grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(p.limit),
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
func (p *Plugin) explain(err error) (health.Status, string) {
	var verdict verdictError
	if errors.As(err, &verdict) {
		return health.Unhealthy, health.CleanDetail(err.Error())
	}
	if failed := p.dial.failure(); failed != nil && status.Code(err) == codes.Unavailable {
		err = fmt.Errorf("cannot connect to %s: %w", p.address, failed)
	}
	return health.Error, health.CleanDetail(err.Error())
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
