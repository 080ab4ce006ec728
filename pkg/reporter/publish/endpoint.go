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

	"github.com/kms-health/kms-health/pkg/contract"
)

// endpoint is one address of the API server: a URL, and the connection to it. It is not
// safe for concurrent use.
type endpoint struct {
	name   string // its URL
	server *url.URL
	config *rest.Config
	proxy  func(*http.Request) (*url.URL, error)

	connection http.RoundTripper  // nil: none
	end        context.CancelFunc // ends the connection, and one that is being made
}

func newEndpoint(config *rest.Config, server *url.URL, proxy func(*http.Request) (*url.URL, error)) (*endpoint, error) {
	e := &endpoint{name: server.String(), server: server, config: config, proxy: proxy}
	if err := e.connect(); err != nil { // opens nothing yet, but checks the settings
		return nil, err
	}
	return e, nil
}

// connect prepares the next connection. It uses HTTP/1.1: with one request at a time
// HTTP/2 has no advantage, and would keep using a broken connection.
func (e *endpoint) connect() error {
	tlsConfig, err := rest.TLSConfigFor(e.config)
	if err != nil {
		return err
	}
	// By default a transport continues to make a connection after its request has ended,
	// without a bound, and uses it for a later request. Here disconnect closes every
	// connection that was dialled.
	life, end := context.WithCancel(context.Background())
	transport := &http.Transport{
		TLSClientConfig: tlsConfig,
		Proxy:           e.proxy,
		DialContext: func(attempt context.Context, network, address string) (net.Conn, error) {
			deadline, _ := attempt.Value(deadlineKey{}).(time.Time)
			conn, err := dial(life, deadline, network, address)
			if err != nil {
				return nil, err
			}
			return dialed{conn, context.AfterFunc(life, func() { _ = conn.Close() })}, nil
		},
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        2 * time.Minute, // before a firewall drops its state
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

// connectTimeout bounds the connection to one address: a SYN that is lost is sent again after
// 1 s. It is less than the timeout of a write, so that a server that drops packets does not
// delay the next try of one that is restarting.
const connectTimeout = 2 * time.Second

// dial connects to an address of a name before the deadline.
func dial(ctx context.Context, deadline time.Time, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
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

// disconnect closes the connection, also one that is being made.
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
	// acceptMetadata requests the object's metadata only: the whole object is large, and
	// not needed.
	acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	// maxAnswer bounds how much of a response is read, in bytes: enough for metadata with
	// the managed fields of some hundred reporters.
	maxAnswer = 4 << 20
	// maxErrorText bounds how much of an error response is read, in bytes.
	maxErrorText = 64 << 10
)

// apply sends one request: a Server-Side Apply of the resource's status. It ends within
// the timeout whatever the server does: the connection is closed when ctx ends, since
// net/http does not always stop using it.
func (e *endpoint) apply(ctx context.Context, to contract.Resource, manager string, payload []byte, timeout time.Duration) *failure {
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
	target := e.server.JoinPath(to.StatusPath()...)
	target.RawQuery = url.Values{"fieldManager": {manager}, "force": {"true"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, target.String(), bytes.NewReader(payload))
	if err != nil {
		return &failure{kind: BadCredentials, err: err}
	}
	request.Header.Set("Content-Type", "application/apply-patch+yaml") // JSON is YAML
	request.Header.Set("Accept", acceptMetadata)
	failed, err := e.exchange(request, manager)
	if err == nil {
		return failed
	}
	switch ended := ctx.Err(); {
	case ended == nil: // if it is a timeout, then of the connection
		timeout = min(timeout, connectTimeout)
	case !errors.Is(err, ended): // which closed the connection
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return transportFailure(err, timeout)
}

// exchange sends a request and returns the result according to the response, or an error
// without a complete response. It uses the transport directly, without net/http's client,
// which would follow redirects (an API server does not redirect a PATCH, and another
// server must get neither the token nor a GET) and writes URLs into its errors.
func (e *endpoint) exchange(request *http.Request, manager string) (*failure, error) {
	answer, err := e.connection.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or abandoned
	switch answer.StatusCode / 100 {
	case 1: // 101: another protocol follows, without an end
		return answerFailure(answer.StatusCode, answer.Header, nil), nil
	case 2:
		if kind := answer.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
			return &failure{kind: Unexpected, err: fmt.Errorf("it answered %d with %q: this is no API server", answer.StatusCode, kind)}, nil
		}
		// Read to the end, so that the connection can be used again.
		metadata, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
		if err != nil {
			return nil, err
		}
		return listFailure(metadata, manager), nil
	default:
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorText))
		return answerFailure(answer.StatusCode, answer.Header, text), err
	}
}
