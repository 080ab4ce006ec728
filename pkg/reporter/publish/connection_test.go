package publish

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/must"
)

// Behind a load balancer, only a new connection can reach another server.
func TestFailureThatAnotherServerMightNotHaveClosesTheConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   bool // a new connection
	}{
		"none":             {nil, false},
		"500":              {fails(500), true},
		"503 without body": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, true},
		"401":              {fails(http.StatusUnauthorized), true},
		"429":              {fails(http.StatusTooManyRequests), true},
		"no answer":        {hangs, true},
		"101":              {switches, true},
		"conflict":         {refuses(http.StatusConflict, "conflict", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := waitLimit
			if tt.want { // a timeout also leads to a new connection
				timeout = 500 * time.Millisecond
			}
			s, p := reportTo(t, tt.answer, timeout)
			first := s.next(t)
			s.answers(nil)
			p.offer("2")
			second := s.next(t)
			for second.keyIDs[0] != "2" {
				second = s.next(t)
			}
			if isNew := first.connection != second.connection; isNew != tt.want {
				t.Errorf("a new connection: %t, want %t", isNew, tt.want)
			}
		})
	}
}

// switches answers "101 Switching Protocols". net/http then hands over the connection, and the request's context no
// longer ends it.
func switches(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(waitLimit))
	_, _ = conn.Read(make([]byte, 1)) // until the client closes it
}

// net/http finishes connecting even after its request has ended. With a server that accepts but never answers, such as
// a frozen one, each try would leak a goroutine and a descriptor.
func TestHandshakeThatHangsLeaksNoConnection(t *testing.T) {
	s := newServer(t)
	dir := credentialFiles(t, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var open atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			go func() {
				defer open.Add(-1)
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	replaceIn(t, dir+"/kubeconfig", s.URL, "https://"+listener.Addr().String())
	p := run(t, dir, 50*time.Millisecond)
	p.report(t, "1", TimedOut, 4)
	await(t, "at most one connection is open after 4 tries", func() bool { return open.Load() <= 1 })
}
