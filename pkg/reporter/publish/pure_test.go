package publish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

var noon = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

func TestFailedRequestsAreClassified(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want Kind
	}{
		"refused":          {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Unreachable},
		"no such host":     {&net.DNSError{Err: "no such host", IsNotFound: true}, Unreachable},
		"reset":            {syscall.ECONNRESET, Unreachable},
		"deadline":         {fmt.Errorf("do: %w", context.DeadlineExceeded), TimedOut},
		"dial timeout":     {&net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, TimedOut},
		"unknown CA":       {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, TLSFailed},
		"wrong name":       {&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}}}, TLSFailed},
		"alert":            {&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, TLSFailed},
		"plain text there": {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, TLSFailed},
	} {
		if got := transportFailure(tt.err); got.kind != tt.want {
			t.Errorf("%s: %s, want %s", name, got.kind, tt.want)
		}
	}
}

func TestErrorResponsesAreClassified(t *testing.T) {
	status := func(message, details string) string {
		return `{"kind":"Status","status":"Failure","message":"` + message + `","details":{` + details + `}}`
	}
	for name, tt := range map[string]struct {
		code int
		body string
		want Kind
	}{
		"401":                   {401, status("Unauthorized", ""), Unauthorized},
		"403":                   {403, status("forbidden: User ...", `"name":"cluster"`), Forbidden},
		"404 of the object":     {404, status(`kubeapiservers.operator.openshift.io \"cluster\" not found`, `"name":"cluster","kind":"kubeapiservers"`), NoObject},
		"404 of the resource":   {404, status("the server could not find the requested resource", ""), NoResource},
		"404 of a path":         {404, "404 page not found\n", NoResource},
		"409":                   {409, status("conflict", ""), Conflict},
		"422":                   {422, status("is invalid", ""), Invalid},
		"400":                   {400, status("bad", ""), Invalid},
		"429":                   {429, "too many requests", Throttled},
		"500":                   {500, status("etcd", ""), ServerError},
		"503":                   {503, "no", ServerError},
		"302":                   {302, "", Unexpected},
		"400 of a balancer":     {400, "<html><h1>400 Bad Request</h1>No required SSL certificate was sent</html>", Unexpected},
		"409 of a balancer":     {409, "", Unexpected},
		"422 in another's JSON": {422, `{"message":"no"}`, Unexpected},
		"404 in another's JSON": {404, `{"message":"no","details":{"name":"cluster"}}`, NoResource},
		"500 in another's JSON": {500, `{"message":".status.x: field not declared in schema"}`, ServerError},
	} {
		got := answerFailure(tt.code, []byte(tt.body))
		if got.kind != tt.want {
			t.Errorf("%s: %s, want %s", name, got.kind, tt.want)
		}
		if tt.want == NoObject && !strings.HasSuffix(got.Error(), "the object does not exist, or its CRD has no status subresource") {
			t.Errorf("%s: %q", name, got.Error())
		}
		if !strings.HasPrefix(got.Error(), fmt.Sprint(tt.code)) || strings.Contains(got.Error(), "\n") {
			t.Errorf("%s: %q", name, got.Error())
		}
	}
}

func TestDelaysDoubleUpToTheKindsBound(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		failure failure
		want    []time.Duration
	}{
		{failure{kind: Unreachable}, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		{failure{kind: Forbidden}, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10000 * ms, 10000 * ms}},
	} {
		for i, want := range tt.want {
			if got := delay(&tt.failure, i+1); got != want {
				t.Errorf("%s, failure %d: %s, want %s", tt.failure.kind, i+1, got, want)
			}
		}
	}
	if got := delay(&failure{kind: ServerError}, 1<<30); got != quickDelay {
		t.Errorf("after ever so many failures: %s", got)
	}
}
