package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// endpoint is one way to the API server: a URL, and the connection to it. It is for one
// goroutine at a time.
type endpoint struct {
	name   string // its URL
	server *url.URL
	config *rest.Config
	proxy  func(*http.Request) (*url.URL, error)

	connection http.RoundTripper  // nil: none
	end        context.CancelFunc // of the connection, and of one that is being made
}

func newEndpoint(config *rest.Config, server *url.URL, proxy func(*http.Request) (*url.URL, error)) (*endpoint, error) {
	e := &endpoint{name: server.String(), server: server, config: config, proxy: proxy}
	if err := e.connect(); err != nil { // opens nothing yet, but finds what cannot be used
		return nil, err
	}
	return e, nil
}

// connect prepares the next connection. It speaks HTTP/1.1: with one request at a time
// HTTP/2 gains nothing, and costs a connection that stays in use when it is dead.
func (e *endpoint) connect() error {
	tlsConfig, err := rest.TLSConfigFor(e.config)
	if err != nil {
		return err
	}
	// By itself a transport goes on making a connection that no request waits for any
	// more, without a bound, and gives it to a later request. Here all that it dialled
	// ends with it.
	life, end := context.WithCancel(context.Background())
	transport := &http.Transport{
		TLSClientConfig: tlsConfig,
		Proxy:           e.proxy,
		DialContext: func(attempt context.Context, network, address string) (net.Conn, error) {
			// A Dialer divides the time until its deadline among a name's addresses.
			deadline, _ := attempt.Value(deadlineKey{}).(time.Time)
			conn, err := (&net.Dialer{Deadline: deadline, KeepAlive: 30 * time.Second}).DialContext(life, network, address)
			if err != nil {
				return nil, err
			}
			return dialed{conn, context.AfterFunc(life, func() { _ = conn.Close() })}, nil
		},
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        2 * time.Minute, // before a firewall forgets it
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
		MaxResponseHeaderBytes: maxErrorText,
	}
	connection, err := rest.HTTPWrappersForConfig(e.config, transport)
	if err != nil {
		end()
		return err
	}
	e.connection, e.end = connection, func() { end(); transport.CloseIdleConnections() }
	return nil
}

// disconnect closes the connection, and one that is being made.
func (e *endpoint) disconnect() {
	e.end()
	e.connection = nil
}

// deadlineKey is the key of an attempt's deadline among the values of its context. net/http
// gives a dial those values, but neither the deadline nor the end of that context.
type deadlineKey struct{}

// dialed is a connection that its endpoint closes, unless it was closed before.
type dialed struct {
	net.Conn
	forget func() bool
}

func (d dialed) Close() error {
	d.forget()
	return d.Conn.Close()
}

const (
	// acceptMetadata asks for the object's metadata alone: the whole is large, and
	// none of our business.
	acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	// maxAnswer bounds what is read of an answer, in bytes: metadata with the
	// managed fields of some hundred reporters.
	maxAnswer = 4 << 20
	// maxErrorText bounds what is read of an answer that is an error.
	maxErrorText = 64 << 10
)

// apply sends one request: a Server-Side Apply of the resource's status. It ends within
// the timeout whatever the server does: the connection ends with ctx, since net/http
// does not always end what it does with it.
func (e *endpoint) apply(ctx context.Context, resource, manager string, payload []byte, timeout time.Duration) *failure {
	if e.connection == nil {
		if err := e.connect(); err != nil {
			return &failure{kind: BadCredentials, err: err}
		}
	}
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, deadlineKey{}, deadline), deadline)
	defer cancel()
	keep := context.AfterFunc(ctx, e.end)
	defer func() {
		if !keep() {
			e.disconnect()
		}
	}()
	target := e.server.JoinPath("apis", operatorcr.Group, operatorcr.Version, resource, operatorcr.Name, "status")
	target.RawQuery = url.Values{"fieldManager": {manager}, "force": {"true"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, target.String(), bytes.NewReader(payload))
	if err != nil {
		return &failure{kind: BadCredentials, err: err}
	}
	request.Header.Set("Content-Type", "application/apply-patch+yaml") // JSON is YAML
	request.Header.Set("Accept", acceptMetadata)
	failed, err := e.exchange(request)
	if err == nil {
		return failed
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) { // which closed the connection
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return transportFailure(err, timeout)
}

// exchange sends a request and returns what the answer says, or an error where there is
// no whole answer. The transport is asked directly, without net/http's client, which
// would follow redirects (an API server does not redirect a PATCH, and whoever does shall
// not get our token, nor a GET) and writes URLs into its errors.
func (e *endpoint) exchange(request *http.Request) (*failure, error) {
	answer, err := e.connection.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or given up
	switch answer.StatusCode / 100 {
	case 1: // 101: what follows is another protocol, without an end
		return answerFailure(answer.StatusCode, answer.Header, nil, time.Now()), nil
	case 2:
		if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
			return &failure{kind: Unexpected, err: fmt.Errorf("it answered %d with %q: this is no API server", answer.StatusCode, kind)}, nil
		}
		// Read to the end, so that the connection can be used again.
		_, err := io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer))
		return nil, err
	default:
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorText))
		return answerFailure(answer.StatusCode, answer.Header, text, time.Now()), err
	}
}
