package contract

import "strings"

// Reason is why a plugin is not healthy, in one word for alerts and scripts. Detail is
// for people, and RunbookOf has the meaning of each. Readers treat a Reason that they do not
// know as one more cause.
type Reason string

const (
	ConnectFailed     Reason = "ConnectFailed"
	KeyUnavailable    Reason = "KeyUnavailable"
	PermissionDenied  Reason = "PermissionDenied"
	ProtocolViolation Reason = "ProtocolViolation"
	ReportedUnhealthy Reason = "ReportedUnhealthy"
	RoundTripMismatch Reason = "RoundTripMismatch"
	SocketMissing     Reason = "SocketMissing"
	Throttled         Reason = "Throttled"
	Timeout           Reason = "Timeout"
	Unauthenticated   Reason = "Unauthenticated"
	Unavailable       Reason = "Unavailable"
)

// Reasons are all that this version writes, each with what it follows from.
var Reasons = map[Reason]string{
	ConnectFailed:     "connect(2)",
	KeyUnavailable:    "the gRPC codes `NotFound` and `FailedPrecondition`",
	PermissionDenied:  "the gRPC code",
	ProtocolViolation: "an answer against the KMS v2 API; the gRPC code `Unimplemented`",
	ReportedUnhealthy: "a `healthz` other than `ok`; gRPC health; any other code",
	RoundTripMismatch: "the round trip",
	SocketMissing:     "connect(2) or lstat(2)",
	Throttled:         "the gRPC code `ResourceExhausted`",
	Timeout:           "the gRPC code `DeadlineExceeded`; a plugin that does not read its socket",
	Unauthenticated:   "the gRPC code",
	Unavailable:       "the gRPC code; a connection that breaks during the call",
}

// isReason reports whether a text has the form of a condition's reason (metav1.Condition), bounded:
// 1 to 64 letters, digits and '_', beginning with a letter.
func isReason(text string) bool {
	const most = 64
	isOther := func(r rune) bool { return !isLetterOrDigit(r) && r != '_' }
	return text != "" && len(text) <= most && text[0] >= 'A' && text[0] != '_' && !strings.ContainsFunc(text, isOther)
}
