package health

import "regexp"

// Reason says in one word why a plugin is not healthy, for alerts and scripts. Detail
// says the same to people. Readers pass over a Reason that they do not know.
type Reason string

const (
	// ConnectFailed: no connection to the socket: it is not there, nothing listens on
	// it, or it may not be opened.
	ConnectFailed Reason = "ConnectFailed"
	// Timeout: no answer in time, or the plugin's own deadline ended first
	// (DeadlineExceeded).
	Timeout Reason = "Timeout"
	// Unauthenticated is the gRPC code: the KMS does not know the plugin.
	Unauthenticated Reason = "Unauthenticated"
	// PermissionDenied is the gRPC code: the KMS knows the plugin, which may not.
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
	// ReportedUnhealthy: the plugin says so itself: by a healthz other than ok, by gRPC
	// health, or by an RPC error whose code names no cause.
	ReportedUnhealthy Reason = "ReportedUnhealthy"
	// RoundTripMismatch: a round trip gave back other bytes, or another key.
	RoundTripMismatch Reason = "RoundTripMismatch"
)

// Reasons are all that this version writes.
var Reasons = []Reason{ConnectFailed, Timeout, Unauthenticated, PermissionDenied, Throttled, Unavailable, KeyUnavailable, ProtocolViolation, ReportedUnhealthy, RoundTripMismatch}

// reasonPattern is the form of a condition's reason (metav1.Condition), bounded.
var reasonPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)
