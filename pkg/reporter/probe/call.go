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

// deadlines are gRPC's own texts when a deadline ends here or there. Another one is of a plugin that gave up shortly
// before.
var deadlines = []string{context.DeadlineExceeded.Error(), "Deadline Exceeded", "Deadline exceeded",
	"stream terminated by RST_STREAM with error code: CANCEL"}

// tooLarge reports whether gRPC refused an answer over the bound, for which it has no sign but its
// own text. A plugin that answers with that text can only change the reason of its own error.
func (e *callError) tooLarge() bool {
	text, ours := strings.CutPrefix(status.Convert(e.err).Message(), "grpc: received message larger than max (")
	return ours && strings.HasSuffix(text, fmt.Sprintf(" vs. %d)", maxAnswer))
}

func (e *callError) Unwrap() error { return e.err }

// reason is derived from the code only, never from a plugin's text.
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
	// steps are how many there are in a timeout. One that ends late by more than frozen does not count: this process did
	// not run, and may not have read an answer, or sent the request, for as long.
	steps  = 20
	frozen = 50 * time.Millisecond
	// stall is by how much they are late in all if there is no verdict without an answer.
	stall = steps * frozen
)

// bounded is a context that announces a deadline, and is ended by call.
type bounded struct {
	context.Context
	deadline time.Time
}

func (b bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// call makes a call within a timeout, as kube-apiserver bounds each of its own, and adds the call's
// name to its error.
func call[Q, A any](ctx context.Context, timeout time.Duration, name string,
	method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	began := time.Now()
	running, end := context.WithCancel(ctx)
	defer end()
	var lag atomic.Int64 // for how long this process did not run
	var timer *time.Timer
	due, inTime, all := began.Add(timeout/steps), 0, 0
	timer = time.AfterFunc(math.MaxInt64, func() { // not before it is set
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
	// gRPC makes a call again when its connection ends. If the next connection ends before the request is
	// written, its error is a bare io.EOF; an answer's has a status code.
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the connection ended before the request was sent")
	}
	failed := &callError{call: name, err: err}
	switch took, lag := time.Since(began), time.Duration(lag.Load()); {
	case running.Err() != nil && ctx.Err() == nil && status.Code(err) == codes.Canceled:
		failed.err = status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
		failed.timedOutAfter, failed.stalled = timeout, lag > stall
	// A plugin may answer DeadlineExceeded, for a deadline of its own; or it applies this call's deadline, which may
	// have been sent late, and its answer arrives just before the deadline here.
	case status.Code(err) == codes.DeadlineExceeded && took > timeout*9/10:
		failed.timedOutAfter, failed.stalled = timeout, lag > max(timeout, stall)/4 || took > timeout+stall
	}
	return answer, failed
}

// failureOf is the failure of a call in an error, empty if there is none.
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

// own reports whether an error is the reporter's own, as its lack of descriptors or memory, or of another call than
// connect(2), which a sandbox may deny.
func own(err error) bool {
	_, call := errors.AsType[*os.SyscallError](err)
	errno, _ := errors.AsType[syscall.Errno](err)
	return call || slices.Contains([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS}, errno)
}

// diagnosisTimeout bounds the call that follows a timeout of Status, which takes no longer
// than Status either. With the shortest interval, a second, and a timeout of as much, the
// probe still ends before the next one but one is due.
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
