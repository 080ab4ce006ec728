package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// silence is how long a test waits before it concludes that no data arrives.
const silence = 150 * time.Millisecond

func TestProxyPassesBothWays(t *testing.T) {
	p := newProxy(t)
	conn := dial(t, p)
	mustEcho(t, conn, "hello")
	if got := p.Accepted(); got != 1 {
		t.Errorf("%d connections were accepted, not 1", got)
	}
	// The end of one direction is passed on, and the answer still comes.
	if _, err := fmt.Fprint(conn, "last\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if got, err := io.ReadAll(conn); err != nil || string(got) != "last\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestProxyRefusesNewConnectionsOnItsPortAndKeepsOpenOnes(t *testing.T) {
	p := newProxy(t)
	open := dial(t, p)
	mustEcho(t, open, "before")
	for range 3 {
		setMode(t, p, Refuse)
		if conn, err := net.DialTimeout("tcp", p.Address(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				conn.Close()
			}
			t.Fatalf("the dial got %v, not a refusal", err)
		}
		mustEcho(t, open, "during")
		setMode(t, p, Pass)
		mustEcho(t, dial(t, p), "after")
	}
}

func TestProxyBlackHoleSwallowsOldAndNewConnectionsForGood(t *testing.T) {
	p := newProxy(t)
	old := dial(t, p)
	mustEcho(t, old, "before")

	setMode(t, p, BlackHole)
	during := dial(t, p)
	mustBeSilent(t, old)
	mustBeSilent(t, during)

	setMode(t, p, Pass)
	mustBeSilent(t, old)
	mustBeSilent(t, during)
	mustEcho(t, dial(t, p), "after")
}

func TestProxyForgetsASwallowedConnectionThatItsClientCloses(t *testing.T) {
	p := newProxy(t)
	old := dial(t, p)
	mustEcho(t, old, "before")
	setMode(t, p, BlackHole)
	old.Close()
	dial(t, p).Close()
	err := wait.Until(deadline(t, 5*time.Second), func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.conns) > 0 {
			return fmt.Errorf("%d connections are held", len(p.conns))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestProxyResetsOpenConnections(t *testing.T) {
	p := newProxy(t)
	passed := dial(t, p)
	mustEcho(t, passed, "before")
	setMode(t, p, BlackHole)
	swallowed := dial(t, p)
	mustBeSilent(t, swallowed)
	setMode(t, p, Pass)
	later := dial(t, p)
	mustEcho(t, later, "before")

	p.ResetConnections()
	for name, conn := range map[string]net.Conn{"passed": passed, "swallowed": swallowed, "later": later} {
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: got %v, not a reset", name, err)
		}
	}
	mustEcho(t, dial(t, p), "after")
}

func TestProxyResetsAClientWhenItsTargetIsNotThere(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProxy(loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	// The reset may be there before the dial returns.
	conn, err := net.DialTimeout("tcp", p.Address(), 5*time.Second)
	if err == nil {
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, not a reset", err)
	}
}

func TestProxyDoesNothingOnceClosed(t *testing.T) {
	p := newProxy(t)
	p.Close()
	p.Close()
	if err := p.SetMode(Pass); err == nil {
		t.Error("it took a mode")
	}
	if _, err := net.DialTimeout("tcp", p.Address(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the dial got %v, not a refusal", err)
	}
}

// newProxy proxies an echo server.
func newProxy(t *testing.T) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	p, err := NewProxy(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func setMode(t *testing.T, p *Proxy, mode ProxyMode) {
	t.Helper()
	if err := p.SetMode(mode); err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.Address(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

func mustEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintln(conn, text); err != nil {
		t.Fatal(err)
	}
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || got != text+"\n" {
		t.Fatalf("sent %q, got %q, %v", text, got, err)
	}
}

// mustBeSilent sends data, and requires neither a response nor an end.
func mustBeSilent(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(silence))
	if _, err := fmt.Fprintln(conn, "anyone?"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; wanted silence", n, err)
	}
}
