package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kms-health/kms-health/pkg/health"
)

const (
	// lateHealth bounds the call that distinguishes a process that hangs from one that waits.
	lateHealth = time.Second
	// leastLate is the shortest useful time after the timeout.
	leastLate = lateHealth / 2
)

// late is a call to Status that may continue after its timeout. The verdict is reported
// at the timeout, as kube-apiserver does; the call continues, since its answer may
// contain the cause: a plugin may retry its backend for longer than the API server waits,
// and return the backend's error only then.
type late struct {
	plugin *Plugin
	report func(err error, more bool)
	began  time.Time
	s      Settings
	timer  *time.Timer

	verdict  sync.WaitGroup // while the verdict is reported, and gRPC health called
	process  string         // the result of gRPC health
	reported bool           // the verdict was; not if the timer fired so late that this process cannot have run
}

func (p *Plugin) startLate(ctx context.Context, conn grpc.ClientConnInterface, s Settings, report func(err error, more bool)) *late {
	l := &late{plugin: p, report: report, began: time.Now(), s: s}
	if s.Late < s.Timeout+leastLate {
		return l
	}
	l.verdict.Add(1)
	l.timer = time.AfterFunc(s.Timeout, func() {
		defer l.verdict.Done()
		if l.reported = time.Since(l.began) <= s.Timeout+stall; !l.reported {
			return // the verdict is on the answer that arrives
		}
		report(l.timeout(p.diagnosis), true)
		_, err := grpc_health_v1.NewHealthClient(conn).Check(withTimeout(ctx, min(lateHealth, s.Late-s.Timeout)), &grpc_health_v1.HealthCheckRequest{})
		switch {
		case answered(err):
			l.process = "gRPC health is answered, so the process works: it probably waits for its KMS"
		case !stalled(err):
			l.process = "gRPC health gets no answer either: the process hangs"
		}
	})
	return l
}

// limit is how long the call may continue.
func (l *late) limit() time.Duration {
	if l.timer == nil {
		return l.s.Timeout
	}
	return l.s.Late
}

// timeout is the error of a call that was not answered in time, with the known part of
// the cause.
func (l *late) timeout(diagnosis string) error {
	err := &callError{call: "Status", timedOutAfter: l.s.Timeout, err: status.Error(codes.DeadlineExceeded, "")}
	if diagnosis != "" {
		return &diagnosedError{err, diagnosis}
	}
	return err
}

// ended handles the outcome of the call, and reports whether it came after the timeout.
// If it did, everything was reported.
func (l *late) ended(answer *kmsapi.StatusResponse, err error) bool {
	if l.timer == nil {
		return false
	}
	took := time.Since(l.began)
	if !l.timer.Stop() {
		l.verdict.Wait()
	}
	if !l.reported {
		// The call's own limit is Late, so the call did not notice that this process
		// cannot have run at the timeout.
		var call *callError
		if errors.As(err, &call) && call.timedOutAfter != 0 && took > l.s.Timeout+stall {
			call.stalled = true
		}
		return false
	}
	diagnosis := l.process
	if answered(err) {
		diagnosis = health.CleanDetail(fmt.Sprintf("the answer came after %s: %s", took.Round(time.Second), quoted(answer, err)))
	}
	l.plugin.diagnosis = diagnosis
	l.report(l.timeout(diagnosis), false)
	return true
}

// quoted is the text of an answer to Status.
func quoted(answer *kmsapi.StatusResponse, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("healthz %q", excerpt(answer.Healthz))
}

// diagnosedError adds a diagnosis to the error of a timeout.
type diagnosedError struct {
	*callError
	diagnosis string
}

func (e *diagnosedError) Error() string { return e.callError.Error() + "; " + e.diagnosis }
func (e *diagnosedError) Unwrap() error { return e.callError }

// checkHealthService calls the standard gRPC health service for the whole server. A
// plugin without that service has no finding. It returns an error if the connection was
// lost before the answer, or if the reporter did not run.
func checkHealthService(ctx context.Context, conn grpc.ClientConnInterface) (*verdict, error) {
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, nil
	case status.Code(err) == codes.Unavailable || stalled(err):
		return nil, err
	case err != nil:
		return refusal(err), nil
	case answer.Status != grpc_health_v1.HealthCheckResponse_SERVING:
		return unhealthy(health.ReportedUnhealthy, fmt.Sprintf("gRPC health is %s, not SERVING", answer.Status)), nil
	}
	return nil, nil
}
