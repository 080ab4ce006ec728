package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kms-health/kms-health/pkg/contract"
)

// diagnosisTimeout bounds the call that follows a timeout of Status, which takes no longer
// than Status either. With the shortest interval, a second, and a timeout of as much, the
// probe still ends before the next one but one is due.
const diagnosisTimeout = 500 * time.Millisecond

// diagnosis is the part of the detail that says, after a timeout of Status, whether the
// plugin's process works: any answer to gRPC health shows that, also Unimplemented. It is
// empty for any other error, and if the reporter itself did not run.
func diagnosis(ctx context.Context, conn grpc.ClientConnInterface, timeout time.Duration, err error) string {
	var call *callError
	if !errors.As(err, &call) || call.timedOutAfter == 0 || call.stalled {
		return ""
	}
	_, err = grpc_health_v1.NewHealthClient(conn).Check(withTimeout(ctx, min(timeout, diagnosisTimeout)),
		&grpc_health_v1.HealthCheckRequest{})
	switch {
	case answered(err):
		return "; gRPC health is answered, so the process works: it probably waits for its KMS. " +
			"For the cause see the plugin's log, or run kms-health-reporter --once in the reporter's pod with a longer timeout"
	case !stalled(err) && errors.As(err, &call) && call.timedOutAfter != 0:
		return "; gRPC health gets no answer either: the process hangs"
	default: // the process has ended meanwhile, or this one did not run
		return ""
	}
}

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
		return unhealthy(contract.ReportedUnhealthy, fmt.Sprintf("gRPC health is %s, not SERVING", answer.Status)), nil
	}
	return nil, nil
}
