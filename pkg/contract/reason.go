package contract

import "strings"

// Reason is why a plugin is not healthy, in one word for alerts and scripts. Detail is
// for people. Readers treat a Reason that they do not know as one more cause.
type Reason string

const (
	// ConnectFailed: no connection to the socket: it is not there, nothing listens on
	// it, or it may not be opened.
	ConnectFailed Reason = "ConnectFailed"
	// SocketMissing: the socket is not in its folder: the plugin has ended in order, or
	// has not started yet.
	SocketMissing Reason = "SocketMissing"
	// Timeout: no answer in time, or the plugin's own deadline ended first
	// (DeadlineExceeded).
	Timeout Reason = "Timeout"
	// Unauthenticated is the gRPC code: the KMS does not accept the plugin's credentials.
	Unauthenticated Reason = "Unauthenticated"
	// PermissionDenied is the gRPC code: the KMS knows the plugin, and does not allow the call.
	PermissionDenied Reason = "PermissionDenied"
	// Throttled is the gRPC code ResourceExhausted: too many calls, or a quota.
	Throttled Reason = "Throttled"
	// Unavailable is the gRPC code: the plugin cannot reach its KMS, or the connection
	// broke during the call.
	Unavailable Reason = "Unavailable"
	// KeyUnavailable is the gRPC code NotFound or FailedPrecondition: the key does not
	// exist, or is disabled.
	KeyUnavailable Reason = "KeyUnavailable"
	// ProtocolViolation: an answer that the KMS v2 API forbids: version, key_id, size or
	// annotations; or Unimplemented.
	ProtocolViolation Reason = "ProtocolViolation"
	// ReportedUnhealthy: the plugin itself reports it: by a healthz other than ok, by gRPC
	// health, or by an RPC error whose code names no cause.
	ReportedUnhealthy Reason = "ReportedUnhealthy"
	// RoundTripMismatch: a round trip returned other bytes, or another key.
	RoundTripMismatch Reason = "RoundTripMismatch"
)

// Reasons are all that this version writes.
var Reasons = []Reason{ConnectFailed, SocketMissing, Timeout, Unauthenticated, PermissionDenied, Throttled, Unavailable, KeyUnavailable, ProtocolViolation, ReportedUnhealthy, RoundTripMismatch}

// isReason reports whether a text has the form of a condition's reason (metav1.Condition), bounded:
// 1 to 64 letters, digits and '_', beginning with a letter.
func isReason(text string) bool {
	const most = 64
	isOther := func(r rune) bool { return !isLetterOrDigit(r) && r != '_' }
	return text != "" && len(text) <= most && text[0] >= 'A' && text[0] != '_' && !strings.ContainsFunc(text, isOther)
}
