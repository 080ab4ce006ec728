package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Kind is the result of a write. It is a label value of the metric, so the set is closed.
type Kind string

const (
	Success        Kind = "success"         // the API server's answer shows that the write took effect
	BadCredentials Kind = "bad_credentials" // the credential files are invalid
	Unreachable    Kind = "unreachable"     // no connection, or it broke
	TLSFailed      Kind = "tls"             // the TLS handshake failed: a wrong CA, name or certificate
	TimedOut       Kind = "timeout"         // no answer within the write timeout
	Unauthorized   Kind = "unauthorized"    // 401
	Forbidden      Kind = "forbidden"       // 403
	NoResource     Kind = "no_resource"     // 404 for the resource type: no CRD
	NoObject       Kind = "no_object"       // 404 for the object: it does not exist, or has no status subresource
	Conflict       Kind = "conflict"        // 409 of an API server
	Invalid        Kind = "invalid"         // 400 or 422 of an API server: it rejects the content
	AtomicList     Kind = "atomic_list"     // each apply replaces all conditions: nothing more is written
	NoNodeName     Kind = "no_node_name"    // the condition has no name: nothing is written
	Throttled      Kind = "throttled"       // 429
	ServerError    Kind = "server_error"    // 5xx
	Unexpected     Kind = "unexpected"      // any other response
)

// failure is the error of a write.
type failure struct {
	kind Kind
	err  error
	text string // instead of err's
}

// Error is one line of bounded length, also if the text is from a server.
func (f *failure) Error() string {
	if f.text != "" {
		return f.text
	}
	return contract.CleanDetail(f.err.Error())
}

// transient reports whether a failure of this kind is expected to end soon without intervention. The others last until
// an administrator changes something, and are retried less often.
func (k Kind) transient() bool {
	return slices.Contains([]Kind{Unreachable, TimedOut, Conflict, Throttled, ServerError}, k)
}

// differsByServer reports whether another API server, also behind the same load balancer, might answer differently.
func (k Kind) differsByServer() bool {
	return !slices.Contains([]Kind{BadCredentials, NoObject, Conflict, Invalid, AtomicList}, k)
}

// transportFailure classifies the error of a request without a response. Errors of crypto/tls share only a prefix.
func transportFailure(err error) *failure {
	var network net.Error
	kind := Unreachable
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		kind = TimedOut
	} else if strings.Contains(err.Error(), "tls: ") {
		kind = TLSFailed
	}
	return &failure{kind: kind, err: err}
}

// answerFailure classifies a response other than 2xx. All errors of an API server are a Status. Without one the
// response may be a load balancer's, which uses the same codes, and another server may answer differently.
func answerFailure(code int, body []byte) *failure {
	var status struct { // the fields of a metav1.Status that are needed
		Kind    string
		Message string
		Details struct{ Name string }
	}
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = string(body)
	}
	isStatus := status.Kind == "Status"
	f := &failure{kind: Unexpected, err: fmt.Errorf("%d %s: %s", code, http.StatusText(code), status.Message)}
	switch {
	case code == http.StatusUnauthorized:
		f.kind = Unauthorized
	case code == http.StatusForbidden:
		f.kind = Forbidden
	case code == http.StatusNotFound && isStatus && status.Details.Name != "":
		f.kind = NoObject
		f.err = fmt.Errorf("%w: the object does not exist, or its CRD has no status subresource", f.err)
	case code == http.StatusNotFound:
		f.kind = NoResource
	case code == http.StatusConflict && isStatus:
		f.kind = Conflict
	case (code == http.StatusBadRequest || code == http.StatusUnprocessableEntity) && isStatus:
		f.kind = Invalid
	case code == http.StatusTooManyRequests:
		f.kind = Throttled
	case code >= 500:
		f.kind = ServerError
	}
	return f
}

const (
	firstDelay = 250 * time.Millisecond
	quickDelay = 2 * time.Second  // the longest wait after a transient failure
	slowDelay  = 10 * time.Second // the longest wait after a failure that an administrator must fix
)

// delay returns how long to wait after the nth failure of its kind (from 1) since the last success: 250ms, doubled each
// time up to the kind's bound.
func delay(f *failure, nth int) time.Duration {
	bound := slowDelay
	if f.kind.transient() {
		bound = quickDelay
	}
	return min(firstDelay<<min(nth-1, 10), bound)
}
