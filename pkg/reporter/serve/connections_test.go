package serve

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// hold opens a connection, sends a text, waits for a response if one is expected, and
// leaves the connection open.
func hold(t *testing.T, address string, config *tls.Config, send string, answered bool) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if send == "" {
		return conn
	}
	on := conn
	if config != nil {
		on = tls.Client(conn, config)
	}
	if _, err := io.WriteString(on, send); err != nil {
		t.Fatal(err)
	}
	if answered {
		if err := on.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := on.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		if err := on.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// isOpen reports whether the server has left a connection open. It does not wait.
func isOpen(t *testing.T, conn net.Conn) bool {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	open, buffer := false, make([]byte, 4096)
	err = raw.Read(func(fd uintptr) bool {
		n, err := 1, error(nil)
		for n > 0 || errors.Is(err, syscall.EINTR) {
			n, err = syscall.Read(int(fd), buffer)
		}
		open = errors.Is(err, syscall.EAGAIN)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return open
}

func TestHeldConnectionsDoNotBlockOtherClients(t *testing.T) {
	const held = 3 * 64
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	ca.pair(t, dir, "server")
	secure := &tls.Config{RootCAs: ca.pool(), ServerName: "127.0.0.1"}
	request := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, tt := range map[string]struct {
		serving  *v1alpha1.Serving
		config   *tls.Config
		send     string
		answered bool
	}{
		"nothing was sent":                   {&v1alpha1.Serving{Address: "127.0.0.1:0"}, nil, "", false},
		"half a request was sent":            {&v1alpha1.Serving{Address: "127.0.0.1:0"}, nil, request[:20], false},
		"a request was answered":             {&v1alpha1.Serving{Address: "127.0.0.1:0"}, nil, request, true},
		"TLS, nothing was sent":              {servingTLS(dir, ""), secure, "", false},
		"TLS, half a request was sent":       {servingTLS(dir, ""), secure, request[:20], false},
		"TLS, a request was answered":        {servingTLS(dir, ""), secure, request, true},
		"TLS, no handshake, but half a one":  {servingTLS(dir, ""), nil, "\x16\x03\x01", false},
		"TLS, no handshake, but plain bytes": {servingTLS(dir, ""), nil, request[:4], false},
	} {
		t.Run(name, func(t *testing.T) {
			s := run(t, tt.serving)
			address, scheme := s.await(t), "http://"
			if tt.serving.TLS != nil {
				scheme = "https://"
			}
			var all []net.Conn
			for range held {
				all = append(all, hold(t, address, tt.config, tt.send, tt.answered))
			}
			began := time.Now()
			if r, err := get(t, scheme+address+"/metrics", secure); err != nil || r.StatusCode != http.StatusOK {
				t.Error(r, err)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("an answer took %s, which is as long as a connection may do nothing", took)
			}
			open := 0
			for _, conn := range all {
				if isOpen(t, conn) {
					open++
				}
			}
			if open > 64 {
				t.Errorf("%d of %d connections are open, want at most 64", open, held)
			}
		})
	}
}

func TestAConnectionInUseIsKeptWhenHeldOnesAreClosed(t *testing.T) {
	s := run(t, &v1alpha1.Serving{Address: "127.0.0.1:0"})
	address := s.await(t)
	transport := &http.Transport{MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	scraper := http.Client{Transport: transport, Timeout: patience}
	for i := range 10 {
		request, err := http.NewRequest(http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		reused := false
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		r, err := scraper.Do(request.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if i > 0 && !reused {
			t.Fatalf("scrape %d: the connection was closed", i)
		}
		for range 32 { // with a response, so that all are accepted
			hold(t, address, nil, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", true)
		}
	}
}

func TestIdleAndSlowConnectionsEnd(t *testing.T) {
	t.Parallel() // it waits
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	ca.pair(t, dir, "server")
	plain, secure := run(t, &v1alpha1.Serving{Address: "127.0.0.1:0"}), run(t, servingTLS(dir, ""))
	waiting := map[string]net.Conn{
		"nothing":         hold(t, plain.await(t), nil, "", false),
		"half a request":  hold(t, plain.await(t), nil, "GET /healthz HTTP/1.1\r\n", false),
		"no handshake":    hold(t, secure.await(t), nil, "", false),
		"half a TLS one":  hold(t, secure.await(t), nil, "\x16\x03\x01", false),
		"TLS, no request": hold(t, secure.await(t), &tls.Config{RootCAs: ca.pool(), ServerName: "127.0.0.1"}, "GET /", false),
	}
	for what, conn := range waiting {
		eventually(t, what+" is closed", func() bool { return !isOpen(t, conn) })
	}
}
