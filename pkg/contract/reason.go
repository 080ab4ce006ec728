package contract

import "strings"

// Reason is why a plugin is not healthy, in one word for alerts and scripts. Detail is
// for people, and RunbookOf has the meaning of each. Readers treat a Reason that they do not
// know as one more cause.
type Reason string

const (
	ConnectFailed     Reason = "ConnectFailed"
	SocketMissing     Reason = "SocketMissing"
	Timeout           Reason = "Timeout"           // also gRPC's DeadlineExceeded
	Unauthenticated   Reason = "Unauthenticated"   // the gRPC code
	PermissionDenied  Reason = "PermissionDenied"  // the gRPC code
	Throttled         Reason = "Throttled"         // gRPC's ResourceExhausted
	Unavailable       Reason = "Unavailable"       // the gRPC code, or the connection broke during the call
	KeyUnavailable    Reason = "KeyUnavailable"    // gRPC's NotFound and FailedPrecondition
	ProtocolViolation Reason = "ProtocolViolation" // also gRPC's Unimplemented
	ReportedUnhealthy Reason = "ReportedUnhealthy" // also an RPC error whose code names no cause
	RoundTripMismatch Reason = "RoundTripMismatch"
)

// Reasons are all that this version writes.
var Reasons = []Reason{
	ConnectFailed, SocketMissing, Timeout, Unauthenticated, PermissionDenied, Throttled, Unavailable,
	KeyUnavailable, ProtocolViolation, ReportedUnhealthy, RoundTripMismatch,
}

// isReason reports whether a text has the form of a condition's reason (metav1.Condition), bounded:
// 1 to 64 letters, digits and '_', beginning with a letter.
func isReason(text string) bool {
	const most = 64
	isOther := func(r rune) bool { return !isLetterOrDigit(r) && r != '_' }
	return text != "" && len(text) <= most && text[0] >= 'A' && text[0] != '_' && !strings.ContainsFunc(text, isOther)
}
