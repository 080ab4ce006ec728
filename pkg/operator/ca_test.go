package operator

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/operator/apiserver"
)

func TestCAsEndIsThatOfTheOneThatVerifiesTheAPIServer(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	serving := server.Certificate()
	c := &ownCA{Options: apiserver.Options{Server: server.URL, Now: time.Now}}
	if end, err := c.end(t.Context(), []*x509.Certificate{serving}); err != nil || !end.Equal(serving.NotAfter) {
		t.Errorf("%s, %v, want %s", end, err, serving.NotAfter)
	}
	if end, err := c.end(t.Context(), nil); err != nil || !end.IsZero() {
		t.Errorf("without a CA that verifies it: %s, %v", end, err)
	}
	c.Now = func() time.Time { return serving.NotAfter.Add(time.Hour) }
	if end, err := c.end(t.Context(), []*x509.Certificate{serving}); err != nil || !end.IsZero() {
		t.Errorf("after it has ended: %s, %v", end, err)
	}
	c.Server = "https://127.0.0.1:1"
	if _, err := c.end(t.Context(), nil); err == nil {
		t.Error("nobody answers, which is not known to be a wrong CA")
	}
}
