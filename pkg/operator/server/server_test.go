package server

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// serve serves until the test ends.
func serve(t *testing.T, listener net.Listener, handler http.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, handler) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("it goes on serving")
		}
		if _, err := net.Dial("tcp", listener.Addr().String()); err == nil {
			t.Error("the address is still open")
		}
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestHealthEndpoints(t *testing.T) {
	var ready atomic.Pointer[error]
	listener := listen(t)
	serve(t, listener, Health(func() error {
		if err := ready.Load(); err != nil {
			return *err
		}
		return nil
	}))
	check := func(path string, want int) {
		t.Helper()
		response, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want || strings.Contains(string(body), "secret") {
			t.Errorf("%s: %d %q, %v; want %d", path, response.StatusCode, body, err, want)
		}
	}
	check("/healthz", 200)
	check("/readyz", 200)
	err := errors.New("the configuration has a secret")
	ready.Store(&err)
	check("/healthz", 200)
	check("/readyz", 500)
	check("/metrics", 404)
}

func TestServeReturnsTheErrorOfItsListener(t *testing.T) {
	listener := listen(t)
	_ = listener.Close()
	if err := Serve(t.Context(), listener, http.NotFoundHandler()); err == nil {
		t.Error("no error")
	}
}

// pair writes a certificate for a host into a directory.
func pair(t *testing.T, dir, host string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// handshake returns the certificate that is served to a client of this version of TLS.
func handshake(address string, version uint16) (*x509.Certificate, error) {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0], nil
}

func TestReplacedCertificateIsServedAndABrokenOneIsNot(t *testing.T) {
	dir := t.TempDir()
	if _, err := ListenTLS("127.0.0.1:0", dir, nil); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty directory: %v", err)
	}
	pair(t, dir, "first.test")
	listener, err := ListenTLS("127.0.0.1:0", dir, func() *tls.Config { return &tls.Config{} })
	if err != nil {
		t.Fatal(err)
	}
	serve(t, listener, http.NotFoundHandler())
	served := func(want string) {
		t.Helper()
		c, err := handshake(listener.Addr().String(), tls.VersionTLS13)
		if err != nil || c.VerifyHostname(want) != nil {
			t.Errorf("%v, want the certificate of %s", err, want)
		}
	}
	served("first.test")
	pair(t, dir, "second.test")
	served("second.test")
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("half a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	served("second.test")
	pair(t, dir, "third.test")
	served("third.test")
}

func TestTLSProfileIsThatOfTheMoment(t *testing.T) {
	var lowest atomic.Uint32
	lowest.Store(tls.VersionTLS12)
	listener, err := ListenTLS("127.0.0.1:0", "", func() *tls.Config { return &tls.Config{MinVersion: uint16(lowest.Load())} })
	if err != nil {
		t.Fatal(err)
	}
	serve(t, listener, http.NotFoundHandler())
	for _, c := range []struct {
		lowest, client uint16
		ok             bool
	}{
		{tls.VersionTLS12, tls.VersionTLS12, true}, {tls.VersionTLS12, tls.VersionTLS11, false},
		{tls.VersionTLS13, tls.VersionTLS12, false}, {tls.VersionTLS13, tls.VersionTLS13, true},
		{tls.VersionTLS10, tls.VersionTLS10, !fips140.Enabled()},
	} {
		lowest.Store(uint32(c.lowest))
		if _, err := handshake(listener.Addr().String(), c.client); (err == nil) != c.ok {
			t.Errorf("at least %s: a client with %s: %v", tls.VersionName(c.lowest), tls.VersionName(c.client), err)
		}
	}
}
