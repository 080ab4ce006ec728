package source

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// What a real API server answers is tested with one. This is about answers that
// one gives only when it is unhealthy, or not an API server.
func TestProblemsAreReportedOncePerKind(t *testing.T) {
	status := func(code int, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reason + `","message":"said","code":0}`))
		}
	}
	// It ends with the client, so that the server can be closed.
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		answer      http.HandlerFunc
		unreachable bool
		want        string // empty: no problem
	}{
		"not found":    {status(404, "NotFound"), false, ""},
		"forbidden":    {status(403, "Forbidden"), false, "no right to get " + strings.Join(contract.ResourceNames(), ", ") + " of operator.openshift.io"},
		"unauthorized": {status(401, "Unauthorized"), false, "rejected the credentials"},
		"bad request":  {status(400, "BadRequest"), false, "rejected the request to get kubeapiservers"},
		"unavailable":  {status(503, "ServiceUnavailable"), true, "cannot be reached"},
		"silent":       {silent, true, "cannot be reached: no answer within 50ms"},
		"another page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, true, "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tt.answer)
			t.Cleanup(server.Close)
			patience := time.Minute
			if name == "silent" {
				patience = 50 * time.Millisecond
			}
			c, err := NewCluster(&rest.Config{Host: server.URL}, patience, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			// Long enough for any machine, and it fails if it is needed.
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			found, problems := c.Read(ctx, contract.ResourceNames())
			if tt.want == "" {
				if len(found) > 0 || len(problems) > 0 {
					t.Errorf("%v, %v", found, problems)
				}
				return
			}
			var p *Problem
			if len(problems) != 1 || !errors.As(problems[0], &p) || p.Unreachable != tt.unreachable || !strings.Contains(p.Error(), tt.want) {
				t.Errorf("%q, want %q", problems, tt.want)
			}
		})
	}
}

func TestOneTargetThatIsForbiddenHidesNoOther(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "authentications") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(apiServer))
	}))
	t.Cleanup(server.Close)
	c, err := NewCluster(&rest.Config{Host: server.URL}, time.Minute, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	found, problems := c.Read(context.Background(), contract.ResourceNames())
	if len(found) != len(contract.Resources)-1 || slices.ContainsFunc(found, func(t view.Target) bool { return t.Name == "authentications" }) || len(problems) != 1 || !strings.Contains(problems[0].Error(), "authentications of") {
		t.Errorf("%v, %v", found, problems)
	}
}

func TestTheOffsetIsHeardFromAnyAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	c, err := NewCluster(&rest.Config{Host: server.URL}, time.Minute, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Offset() != 0 {
		t.Error(c.Offset())
	}
	c.Read(context.Background(), contract.ResourceNames()[:1])
	if got := c.Offset(); got < time.Hour-time.Minute || got > time.Hour {
		t.Error(got)
	}
}
