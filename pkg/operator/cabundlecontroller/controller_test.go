package cabundlecontroller

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestCAsEndIsThatOfTheOneThatVerifiesTheAPIServer(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	serving := server.Certificate()
	c := &Controller{Options: Options{Server: server.URL, Now: time.Now}}
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

func TestAnAPIServerThatEndsIsNoProblemOfTheCA(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	none := schema.GroupResource{Resource: "configmaps"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"refused": {refused, true}, "cut": {io.EOF, true}, "slow": {context.DeadlineExceeded, true},
		"starting":    {apierrors.NewServiceUnavailable("starting"), true},
		"encrypted":   {apierrors.NewInternalError(errors.New("kms")), true},
		"busy":        {apierrors.NewTooManyRequests("later", 1), true},
		"no right":    {apierrors.NewForbidden(none, rootCA, nil), false},
		"no object":   {apierrors.NewNotFound(none, rootCA), false},
		"another CA":  {errors.New("its CA does not verify the API server"), false},
		"all is well": {nil, false},
	} {
		if got := unanswered(c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
