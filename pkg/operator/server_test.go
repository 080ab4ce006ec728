package operator

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/kms-health/kms-health/pkg/serving"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

func TestHealthEndpoints(t *testing.T) {
	for ready, want := range map[bool]int{true: 200, false: 500} {
		handler := healthHandler(func() bool { return ready })
		for path, code := range map[string]int{"/healthz": 200, "/readyz": want, "/metrics": 404} {
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
			if response.Code != code {
				t.Errorf("%s, ready %v: %d, want %d", path, ready, response.Code, code)
			}
		}
	}
}

// pair writes a certificate for a host, and its key, into a directory.
func pair(t *testing.T, dir, host string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	must.Succeed(t, err)
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		disk.Write(t, filepath.Join(dir, name), content)
	}
}

func TestFirstCertificateMustBeGoodAndAReplacedOneIsServed(t *testing.T) {
	dir := t.TempDir()
	if _, err := listenTLS("127.0.0.1:0", dir, nil); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty directory: %v", err)
	}
	pair(t, dir, "first.test")
	listener, err := listenTLS("127.0.0.1:0", dir, func() *tls.Config { return &tls.Config{} })
	must.Succeed(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serving.Serve(ctx, listener, http.NotFoundHandler()) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	served := func(want string) {
		t.Helper()
		c, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		must.Succeed(t, err)
		defer c.Close()
		if err := c.ConnectionState().PeerCertificates[0].VerifyHostname(want); err != nil {
			t.Error(err)
		}
	}
	served("first.test")
	pair(t, dir, "second.test")
	served("second.test")
}
