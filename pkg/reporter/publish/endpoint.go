package publish

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
)

// endpoint is one address of the API server: a URL, and the connection to it.
type endpoint struct {
	server    *url.URL
	token     string
	transport *http.Transport
	answer    bytes.Buffer // of the last write; kept, since answers are large and alike
}

// connectTimeout bounds the connection to one address: a SYN that is lost is sent again after
// 1 s. It is less than the timeout of a write, so that a server that drops packets does not
// delay the next try of one that is restarting.
const connectTimeout = 2 * time.Second

// newEndpoint opens nothing yet. The least time that an attempt has bounds a connection, too, which
// net/http continues to make after its request has ended. It uses HTTP/1.1: with one request at a
// time HTTP/2 has no advantage, and would keep using a broken connection.
func newEndpoint(server *url.URL, settings *tls.Config, token string, least time.Duration) *endpoint {
	return &endpoint{server: server, token: token, transport: &http.Transport{
		TLSClientConfig: settings,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address, least)
		},
		TLSHandshakeTimeout:    least,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        2 * time.Minute, // before a firewall drops its state
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
		MaxResponseHeaderBytes: maxErrorText,
	}}
}

func dial(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	return dialFirst(ctx, network, addresses, port)
}

// dialFirst connects to the first address that accepts a connection. Each gets an equal share of
// the time that is left, and at most connectTimeout.
func dialFirst(ctx context.Context, network string, addresses []string, port string) (conn net.Conn, err error) {
	deadline, _ := ctx.Deadline()
	for i, ip := range addresses {
		share := time.Until(deadline) / time.Duration(len(addresses)-i)
		dialer := net.Dialer{Timeout: min(share, connectTimeout), KeepAlive: 30 * time.Second}
		if conn, err = dialer.DialContext(ctx, network, net.JoinHostPort(ip, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// disconnect closes the connection, or the one that is being made once it is.
func (e *endpoint) disconnect() { e.transport.CloseIdleConnections() }

const (
	// acceptMetadata requests the object's metadata only: the whole object is large, and
	// not needed.
	acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	// maxAnswer bounds how much of a response is read, in bytes: enough for metadata with
	// the managed fields of some hundred reporters.
	maxAnswer = 4 << 20
	// maxErrorText bounds how much of an error response is read, in bytes.
	maxErrorText = 64 << 10
)

// apply sends one request: a Server-Side Apply of the resource's status.
func (e *endpoint) apply(ctx context.Context, c *Config, payload []byte, timeout time.Duration) *failure {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	manager := contract.ConditionManager(c.Node)
	target := e.server.JoinPath(c.To.StatusPath()...)
	target.RawQuery = url.Values{"fieldManager": {manager}, "force": {"true"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, target.String(), bytes.NewReader(payload))
	if err != nil {
		return &failure{kind: BadCredentials, err: err}
	}
	request.Header.Set("Content-Type", "application/apply-patch+yaml") // JSON is YAML
	request.Header.Set("Accept", acceptMetadata)
	request.Header.Set("User-Agent", c.UserAgent)
	if e.token != "" {
		request.Header.Set("Authorization", "Bearer "+e.token)
	}
	failed, err := e.exchange(request, manager)
	switch {
	case err == nil:
		return failed
	case ctx.Err() != nil: // which ended the request, whatever its error is
		if !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		err = fmt.Errorf("no answer within %s: %w", timeout.Round(time.Millisecond), err)
	}
	return transportFailure(err)
}

// exchange sends a request and returns the result according to the response, or an error
// without a complete response. It uses the transport directly, without net/http's client,
// which would follow redirects (an API server does not redirect a PATCH, and another
// server must get neither the token nor a GET) and writes URLs into its errors.
func (e *endpoint) exchange(request *http.Request, manager string) (*failure, error) {
	answer, err := e.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or abandoned
	switch answer.StatusCode / 100 {
	case 1: // 101: another protocol follows, without an end
		return answerFailure(answer.StatusCode, answer.Header, nil), nil
	case 2:
		if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
			return &failure{kind: Unexpected, err: fmt.Errorf("it answered %d with %q: this is no API server",
				answer.StatusCode, kind)}, nil
		}
		// Read to the end, so that the connection can be used again.
		e.answer.Reset()
		if _, err := e.answer.ReadFrom(io.LimitReader(answer.Body, maxAnswer)); err != nil {
			return nil, err
		}
		return listFailure(e.answer.Bytes(), manager), nil
	default:
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorText))
		return answerFailure(answer.StatusCode, answer.Header, text), err
	}
}

// body returns the applied configuration: the reporter's own condition and nothing else.
func body(to contract.Resource, node string, since time.Time, entries []contract.Entry) ([]byte, error) {
	message, err := contract.EncodeMessage(entries)
	if err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	return applybody.Marshal(to.WithStatus(map[string]any{"conditions": []map[string]string{{
		"type":               contract.ConditionType(node),
		"status":             contract.ConditionStatus,
		"lastTransitionTime": since.UTC().Format(time.RFC3339),
		"reason":             contract.ConditionReason,
		"message":            message,
	}}}))
}

var errAtomicList = errors.New("the list status.conditions of this resource is atomic, so each write removes " +
	"all other conditions: nothing more is written. Set x-kubernetes-list-type: map and " +
	"x-kubernetes-list-map-keys: [type] in its CRD, and restart the reporter")

// listFailure returns the failure of a write that was accepted, but replaced the whole list of
// conditions: by the answer's managed fields, the manager then owns the list and no item of it. An
// API server writes fieldsV1 without white space.
func listFailure(answer []byte, manager string) *failure {
	if !bytes.Contains(answer, []byte(`"f:conditions":{}`)) {
		return nil // nearly always; decoding costs more than all else here
	}
	var object struct {
		Metadata struct {
			ManagedFields []struct {
				Manager  string `json:"manager"`
				FieldsV1 struct {
					Status struct {
						Conditions map[string]struct{} `json:"f:conditions"`
					} `json:"f:status"`
				} `json:"fieldsV1"`
			} `json:"managedFields"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(answer, &object) // what is no object shows nothing
	for _, owned := range object.Metadata.ManagedFields {
		if items := owned.FieldsV1.Status.Conditions; owned.Manager == manager && items != nil && len(items) == 0 {
			return &failure{kind: AtomicList, err: errAtomicList}
		}
	}
	return nil
}
