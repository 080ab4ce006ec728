package serving

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/util/cert"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitLimit = 20 * time.Second

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// files writes a certificate for a host, and its key, into a directory.
func files(t *testing.T, dir, host string) (certFile, keyFile string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	must.Succeed(t, err)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	disk.Write(t, certFile, certificate)
	disk.Write(t, keyFile, key)
	return certFile, keyFile
}

// serve serves until the test ends, and returns the address.
func serve(t *testing.T, handshake func(*tls.ClientHelloInfo) (*tls.Config, error)) string {
	t.Helper()
	listener, err := Listen("127.0.0.1:0", handshake)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, http.NotFoundHandler()) }()
	address := listener.Addr().String()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(waitLimit):
			t.Error("it continues to serve")
		}
		if _, err := net.Dial("tcp", address); err == nil {
			t.Error("the address is still open")
		}
	})
	return address
}

// open opens a connection, and sends a text.
func open(t *testing.T, address, send string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, send)
	must.Succeed(t, err)
	return conn
}

// read waits for an answer, at most until the limit.
func read(t *testing.T, conn net.Conn, limit time.Duration) error {
	t.Helper()
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(limit)))
	_, err := conn.Read(make([]byte, 4096))
	return err
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	address := serve(t, nil)
	var held []net.Conn
	for range maxConnections {
		conn := open(t, address, request)
		must.Succeed(t, read(t, conn, waitLimit))
		held = append(held, conn)
	}
	next := open(t, address, request)
	if err := read(t, next, 300*time.Millisecond); err == nil {
		t.Fatalf("one more than %d connections was answered", maxConnections)
	}
	_ = held[0].Close()
	if err := read(t, next, waitLimit); err != nil {
		t.Errorf("after another connection was closed: %v", err)
	}
}

// Otherwise 64 clients that send nothing would block the address forever.
func TestIdleAndSlowConnectionsEnd(t *testing.T) {
	t.Parallel() // it waits
	var pair KeyPair
	certFile, keyFile := files(t, t.TempDir(), "server.test")
	plain := serve(t, nil)
	secure := serve(t, func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := pair.Read(certFile, keyFile)
		return &tls.Config{Certificates: []tls.Certificate{*c}}, err
	})
	waiting := map[string]net.Conn{
		"nothing":        open(t, plain, ""),
		"half a request": open(t, plain, "GET /healthz HTTP/1.1\r\n"),
		"no handshake":   open(t, secure, ""),
		"half of one":    open(t, secure, "\x16\x03\x01"),
	}
	onTLS := tls.Client(open(t, secure, ""), &tls.Config{InsecureSkipVerify: true})
	_, err := io.WriteString(onTLS, "GET /")
	must.Succeed(t, err)
	waiting["half a request over TLS"] = onTLS
	for what, conn := range waiting {
		must.Succeed(t, conn.SetReadDeadline(time.Now().Add(waitLimit)))
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			t.Errorf("%s: it stays open", what)
		}
	}
}

func TestServeReturnsTheErrorOfItsListener(t *testing.T) {
	listener, err := Listen("127.0.0.1:0", nil)
	must.Succeed(t, err)
	_ = listener.Close()
	if err := Serve(t.Context(), listener, http.NotFoundHandler()); err == nil {
		t.Error("no error")
	}
}

func TestLastGoodKeyPairIsUsedWhileTheFilesAreInvalid(t *testing.T) {
	dir := t.TempDir()
	var pair KeyPair
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := pair.Read(certFile, keyFile); err == nil {
		t.Fatal("no error before the first one")
	}
	served := func(when, want string) {
		t.Helper()
		got, err := pair.Read(certFile, keyFile)
		if err != nil || got.Leaf.VerifyHostname(want) != nil {
			t.Errorf("%s: %v, want the certificate of %s", when, err, want)
		}
	}
	files(t, dir, "first.test")
	served("first", "first.test")
	files(t, dir, "second.test")
	served("replaced", "second.test")

	_, otherKey := files(t, t.TempDir(), "other.test")
	key := disk.Read(t, otherKey)
	disk.Write(t, keyFile, key)
	served("the key of another certificate", "second.test")
	disk.Write(t, certFile, []byte("half a certificate"))
	served("half a certificate", "second.test")
	disk.Write(t, certFile, nil)
	disk.Write(t, keyFile, nil)
	served("empty files", "second.test")
	must.Succeed(t, os.Remove(keyFile))
	served("no key", "second.test")
	files(t, dir, "third.test")
	served("a new pair", "third.test")
}
