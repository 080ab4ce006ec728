package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kms-health/kms-health/pkg/contract"
)

// callError is the failure of a call.
type callError struct {
	call          string
	timedOutAfter time.Duration // the timeout, if it ended the call
	// stalled: this process did not run for so long (a frozen cgroup, a paused machine, no CPU time)
	// that the answer may have arrived in time.
	stalled bool
	err     error
}

func (e *callError) Error() string {
	state := status.Convert(e.err)
	if e.timedOutAfter != 0 && slices.Contains(deadlines, state.Message()) {
		return fmt.Sprintf("%s: no answer within %s", e.call, e.timedOutAfter)
	}
	text := fmt.Sprintf("%s: %s: %s", e.call, state.Code(), state.Message())
	if state.Code() == codes.Unknown {
		text += " (an error without a gRPC code, as of an exception: see the plugin's log)"
	}
	if strings.HasSuffix(state.Message(), "RST_STREAM with error code: INTERNAL_ERROR") {
		text += fmt.Sprintf("; its headers may be larger than %d bytes, the reporter's bound", maxHeaders)
	}
	return text
}

// deadlines are gRPC's own texts for a deadline that ended here or in the plugin. With another text, the plugin itself
// gave up shortly before.
var deadlines = []string{context.DeadlineExceeded.Error(), "Deadline Exceeded", "Deadline exceeded",
	"stream terminated by RST_STREAM with error code: CANCEL"}

// tooLarge reports whether gRPC refused an answer over the bound, which only gRPC's own text shows.
// A plugin that answers with that text can only change the reason of its own error.
func (e *callError) tooLarge() bool {
	text, ours := strings.CutPrefix(status.Convert(e.err).Message(), "grpc: received message larger than max (")
	return ours && strings.HasSuffix(text, fmt.Sprintf(" vs. %d)", maxAnswer))
}

func (e *callError) Unwrap() error { return e.err }

// reason is derived from the gRPC code, never from a plugin's text. Only tooLarge reads a text: gRPC's own.
func (e *callError) reason() contract.Reason {
	if e.tooLarge() {
		return contract.ProtocolViolation
	}
	return cmp.Or(reasons[status.Code(e.err)], contract.ReportedUnhealthy)
}

var reasons = map[codes.Code]contract.Reason{
	codes.DeadlineExceeded:  contract.Timeout,
	codes.Unauthenticated:   contract.Unauthenticated,
	codes.PermissionDenied:  contract.PermissionDenied,
	codes.ResourceExhausted: contract.Throttled,
	codes.Unavailable:       contract.Unavailable,
	codes.NotFound:          contract.KeyUnavailable,
	codes.Unimplemented:     contract.ProtocolViolation,
}

const (
	// A timeout is counted in steps. A step that ends more than frozen late does not count: this process did not
	// run, and may not have read an answer, or sent the request, for that time.
	steps  = 20
	frozen = 50 * time.Millisecond
	// stall bounds how late the steps may be in all. Beyond it, a call without an answer gives no verdict.
	stall = steps * frozen
)

// bounded is a context that has a deadline, which gRPC sends to the plugin, but that ends only when call ends it.
type bounded struct {
	context.Context
	deadline time.Time
}

func (b bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// call makes a call within a timeout, as kube-apiserver does for each call, and adds the call's name to its
// error. The timeout counts only the time in which this process runs.
func call[Q, A any](ctx context.Context, timeout time.Duration, name string,
	method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	began := time.Now()
	running, end := context.WithCancel(ctx)
	defer end()
	var lag atomic.Int64 // for how long this process did not run
	var timer *time.Timer
	due, inTime, all := began.Add(timeout/steps), 0, 0
	timer = time.AfterFunc(math.MaxInt64, func() { // it runs only after Reset below, when timer is set
		by := time.Since(due)
		if all++; by <= frozen {
			inTime, by = inTime+1, 0
		}
		lag.Add(int64(by))
		if due = due.Add(by + timeout/steps); running.Err() == nil && inTime < steps && all < 2*steps {
			timer.Reset(time.Until(due))
		} else {
			end()
		}
	})
	timer.Reset(timeout / steps)
	defer timer.Stop()
	answer, err := method(bounded{running, began.Add(timeout)}, request)
	if err == nil {
		return answer, nil
	}
	// gRPC repeats a call when its connection ends. If the next connection ends before the request is written,
	// the error is a bare io.EOF. An error that a plugin returned has a status code.
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the connection ended before the request was sent")
	}
	failed := &callError{call: name, err: err}
	switch took, lag := time.Since(began), time.Duration(lag.Load()); {
	case running.Err() != nil && ctx.Err() == nil && status.Code(err) == codes.Canceled:
		failed.err = status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
		failed.timedOutAfter, failed.stalled = timeout, lag > stall
	// The plugin answered DeadlineExceeded. Near the end of the timeout, it applied this call's deadline, which may have
	// been sent late. Otherwise it applied a deadline of its own.
	case status.Code(err) == codes.DeadlineExceeded && took > timeout*9/10:
		failed.timedOutAfter, failed.stalled = timeout, lag > max(timeout, stall)/4 || took > timeout+stall
	}
	return answer, failed
}

// failureOf returns the callError in an error; empty if there is none.
func failureOf(err error) callError {
	if failed, ok := errors.AsType[*callError](err); ok {
		return *failed
	}
	return callError{}
}

// answered reports whether a call's outcome came from the plugin's process: an answer,
// or an error that was caused neither by the connection nor by a timeout.
func answered(err error) bool {
	failed, code := failureOf(err), status.Code(err)
	return err == nil ||
		failed.err != nil && failed.timedOutAfter == 0 && code != codes.Unavailable && code != codes.Canceled
}

// own reports whether an error is the reporter's own: it lacks descriptors or memory, or another system call than
// connect(2) failed, which a sandbox may deny. Errors of connect(2) have no os.SyscallError here: see connection.
func own(err error) bool {
	_, call := errors.AsType[*os.SyscallError](err)
	errno, _ := errors.AsType[syscall.Errno](err)
	return call || slices.Contains([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS}, errno)
}

// diagnosisTimeout bounds the call that follows a timeout of Status. That call also takes no longer
// than Status. With the shortest interval and a timeout as long (a second), the two take 1.5 s, so
// only one later probe is skipped.
const diagnosisTimeout = 500 * time.Millisecond

// diagnosis is the part of the detail that says, after a timeout of Status, whether the
// plugin's process works: any answer to gRPC health shows that, also Unimplemented. It is
// empty for any other error, and if the reporter itself did not run.
func diagnosis(ctx context.Context, conn grpc.ClientConnInterface, timeout time.Duration, err error) string {
	if failed := failureOf(err); failed.timedOutAfter == 0 || failed.stalled {
		return ""
	}
	_, err = call(ctx, min(timeout, diagnosisTimeout), "gRPC health", grpc_health_v1.NewHealthClient(conn).Check,
		&grpc_health_v1.HealthCheckRequest{})
	switch failed := failureOf(err); {
	case answered(err):
		return "; gRPC health is answered, so the process works: it probably waits for its KMS, or for a free worker. " +
			"For the cause see the plugin's log, or run kms-health-reporter --once in the reporter's pod with a longer timeout"
	case !failed.stalled && failed.timedOutAfter != 0:
		return "; gRPC health gets no answer either: the process hangs"
	default: // the process has ended meanwhile, or this one did not run
		return ""
	}
}
