package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// reasons has the reason for a gRPC code. A plugin's text never decides it.
var reasons = map[codes.Code]contract.Reason{
	codes.DeadlineExceeded:  contract.Timeout,
	codes.Unauthenticated:   contract.Unauthenticated,
	codes.PermissionDenied:  contract.PermissionDenied,
	codes.ResourceExhausted: contract.Throttled,
	codes.Unavailable:       contract.Unavailable,
	codes.NotFound:          contract.KeyUnavailable,
	codes.Unimplemented:     contract.ProtocolViolation,
}

// deadlines are gRPC's own texts for a deadline. With another text, the plugin itself gave up shortly before.
var deadlines = []string{context.DeadlineExceeded.Error(), "Deadline Exceeded", "Deadline exceeded",
	"stream terminated by RST_STREAM with error code: CANCEL"}

// failedCall is the verdict on a failed call of a plugin that answers Status: it is unhealthy, or in error if its
// backend is unavailable. If Status itself fails, Probe makes each verdict an error.
func failedCall(name string, err error) *verdict {
	code, text := status.Code(err), status.Convert(err).Message()
	v := unhealthy(cmp.Or(reasons[code], contract.ReportedUnhealthy), fmt.Sprintf("%s: %s: %s", name, code, text))
	switch {
	case code == codes.Unavailable:
		v.status, v.lost = contract.Error, true
	case code == codes.Canceled:
		v.lost = true // or the plugin itself returned that code
	case code == codes.Unknown:
		v.detail += " (an error without a gRPC code, as of an exception: see the plugin's log)"
	case strings.HasPrefix(text, "grpc: received message larger than max (") &&
		strings.HasSuffix(text, fmt.Sprintf(" vs. %d)", maxAnswer)): // gRPC refused an answer over the bound
		v.reason = contract.ProtocolViolation
	case strings.HasSuffix(text, "RST_STREAM with error code: INTERNAL_ERROR"):
		v.detail += fmt.Sprintf("; its headers may be larger than %d bytes, the reporter's bound", maxHeaders)
	}
	return v
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

// call makes a call within a timeout, as kube-apiserver does. It returns the answer, or the verdict on a failure. The
// timeout counts only the time in which this process runs.
func call[Q, A any](ctx context.Context, timeout time.Duration, name string,
	method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, *verdict) {
	began := time.Now()
	running, end := context.WithCancel(ctx)
	defer end()
	var late atomic.Int64 // for how long this process did not run
	due, inTime, all := began.Add(timeout/steps), 0, 0
	var step func()
	step = func() {
		by := time.Since(due)
		if all++; by <= frozen {
			inTime, by = inTime+1, 0
		}
		late.Add(int64(by))
		if due = due.Add(by + timeout/steps); running.Err() == nil && inTime < steps && all < 2*steps {
			time.AfterFunc(time.Until(due), step)
		} else {
			end()
		}
	}
	// Created with its time, not by Reset: Go would wake the process at the time of a timer that was reset and stopped.
	defer time.AfterFunc(timeout/steps, step).Stop()
	answer, err := method(bounded{running, began.Add(timeout)}, request)
	if err == nil {
		return answer, nil
	}
	// gRPC repeats a call when its connection ends. If the next one ends before the request is written, the error is EOF.
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the connection ended before the request was sent")
	}
	v, noAnswer := failedCall(name, err), fmt.Sprintf("%s: no answer within %s", name, timeout)
	switch took, lag := time.Since(began), time.Duration(late.Load()); {
	case status.Code(err) == codes.Canceled && running.Err() != nil && ctx.Err() == nil:
		v = unhealthy(contract.Timeout, noAnswer)
		v.timedOut, v.stalled = true, lag > stall
	// The plugin answered DeadlineExceeded. Near the end of the timeout, it applied this call's deadline, which may have
	// been sent late. Otherwise it applied a deadline of its own.
	case v.reason == contract.Timeout && took > timeout*9/10:
		v.timedOut, v.stalled = true, lag > max(timeout, stall)/4 || took > timeout+stall
		if slices.Contains(deadlines, status.Convert(err).Message()) {
			v.detail = noAnswer
		}
	}
	return answer, v
}

// own reports whether an error is the reporter's own: it lacks descriptors or memory, or another system call than
// connect(2) failed, which a sandbox may deny. Errors of connect(2) have no os.SyscallError here: see connection.
func own(err error) bool {
	_, call := errors.AsType[*os.SyscallError](err)
	errno, _ := errors.AsType[syscall.Errno](err)
	return call || slices.Contains([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS}, errno)
}

// diagnosisTimeout bounds the call after a timeout of Status: with the shortest interval only one probe is skipped.
const diagnosisTimeout = 500 * time.Millisecond

// diagnosis is the part of the detail that says, after a timeout of Status, whether the plugin's process works: any
// answer to gRPC health shows that, also Unimplemented. It is empty after any other failure, if the process has ended
// meanwhile, and if the reporter itself did not run.
func diagnosis(ctx context.Context, conn grpc.ClientConnInterface, timeout time.Duration, of *verdict) string {
	if !of.timedOut || of.stalled {
		return ""
	}
	_, v := call(ctx, min(timeout, diagnosisTimeout), "gRPC health", grpc_health_v1.NewHealthClient(conn).Check,
		&grpc_health_v1.HealthCheckRequest{})
	switch {
	case v.answered():
		return "; gRPC health is answered, so the process works: it probably waits for its KMS, or for a free worker. " +
			"For the cause see the plugin's log, or run kms-health-reporter --once in the reporter's pod with a longer timeout"
	case v.timedOut && !v.stalled:
		return "; gRPC health gets no answer either: the process hangs"
	}
	return ""
}
