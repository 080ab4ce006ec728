package publish

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// endpoint is one address of the API server: a URL, and the connection to it.
type endpoint struct {
	server    *url.URL
	target    string      // the URL of each write
	header    http.Header // of each write; not changed, since requests share it
	node      string
	transport *http.Transport
	answer    bytes.Buffer // for one answer; kept for the next, since answers are large
}

// newEndpoint opens nothing yet. least is the shortest time of an attempt. It also bounds connecting, which net/http
// continues after the request has ended. HTTP/2 would keep using a broken connection.
func newEndpoint(c *Config, server *url.URL, settings *tls.Config, token string, least time.Duration) *endpoint {
	target := server.JoinPath(c.To.StatusPath()...)
	target.RawQuery = url.Values{"fieldManager": {contract.ConditionManager(c.Node)}, "force": {"true"}}.Encode()
	header := http.Header{
		"Content-Type": {"application/apply-patch+yaml"}, // JSON is YAML
		"Accept":       {acceptMetadata},
		"User-Agent":   {c.UserAgent},
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return &endpoint{server: server, target: target.String(), header: header, node: c.Node, transport: &http.Transport{
		TLSClientConfig:        settings,
		DialContext:            (&net.Dialer{Timeout: least}).DialContext, // each address gets a share
		TLSHandshakeTimeout:    least,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        2 * time.Minute, // before a firewall drops its state
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
		MaxResponseHeaderBytes: maxErrorText,
	}}
}

// disconnect closes the connection. One that is still being made is closed as soon as it is made.
func (e *endpoint) disconnect() { e.transport.CloseIdleConnections() }

// acceptMetadata requests the object's metadata only: the whole object is large, and not needed.
const acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// apply sends one request: a Server-Side Apply of the resource's status.
func (e *endpoint) apply(ctx context.Context, payload []byte, timeout time.Duration) *failure {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, e.target, bytes.NewReader(payload))
	if err != nil {
		return &failure{kind: BadCredentials, err: err}
	}
	request.Header = e.header
	failed, err := e.exchange(request)
	switch {
	case err == nil:
		return failed
	case ctx.Err() != nil: // ctx ended the request, whatever the error is
		return &failure{kind: TimedOut, err: fmt.Errorf("no answer within %s: %w", timeout.Round(time.Millisecond), err)}
	}
	return transportFailure(err)
}

// exchange sends a request and returns the result by the response, or an error without a status, or without the whole
// answer to an accepted write. net/http's client would follow redirects with the token, and show URLs in its errors.
func (e *endpoint) exchange(request *http.Request) (*failure, error) {
	answer, err := e.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or abandoned
	switch answer.StatusCode / 100 {
	case 1: // 101: another protocol follows, without an end
		return answerFailure(answer.StatusCode, nil), nil
	case 2:
		if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
			return &failure{kind: Unexpected, err: fmt.Errorf("it answered %d with %q: this is no API server",
				answer.StatusCode, kind)}, nil
		}
		defer e.clear()
		// Read to the end, so that the connection can be used again.
		if _, err := e.answer.ReadFrom(io.LimitReader(answer.Body, maxAnswer)); err != nil {
			return nil, err
		}
		return answerShows(e.answer.Bytes(), e.node), nil
	default:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorText)) // the status counts, whatever follows
		return answerFailure(answer.StatusCode, text), nil
	}
}

// clear empties the buffer, and keeps it unless it is large.
func (e *endpoint) clear() {
	e.answer.Reset()
	if e.answer.Cap() > keptAnswer {
		e.answer = bytes.Buffer{}
	}
}

// body returns the applied configuration: the reporter's own condition and nothing else.
func body(to contract.Resource, node string, since time.Time, entries []contract.Entry) ([]byte, error) {
	message, err := contract.EncodeMessage(entries)
	if err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	return contract.Body(to.WithStatus(map[string]any{"conditions": []map[string]string{{
		"type":               contract.ConditionType(node),
		"status":             contract.ConditionStatus,
		"lastTransitionTime": since.UTC().Format(time.RFC3339),
		"reason":             contract.ConditionReason,
		"message":            message,
	}}})), nil
}
