package source

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/test/harness/must"
)

// cluster takes a snapshot from a server with this handler.
func cluster(t *testing.T, timeout time.Duration, answer http.HandlerFunc) (*view.Snapshot, error) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := NewCluster(&rest.Config{Host: server.URL, Timeout: timeout}, "ns", clock.RealClock{})
	must.Succeed(t, err)
	return c.Read(t.Context())
}

func status(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reason + `","message":"said","code":0}`))
	}
}

// The usual answers are tested with a real API server. Only an unhealthy one, or another server, gives these. The problem
// is reported once, and names each resource.
func TestProblemsOfACluster(t *testing.T) {
	const kmsHealths = `{"kind":"KMSHealthList","apiVersion":"kmshealth.openshift.io/v1alpha1","items":[{"kind":"KMSHealth","apiVersion":"kmshealth.openshift.io/v1alpha1","metadata":{"name":"a"}}]}`
	const kube = "kubeapiservers/cluster"
	// silent returns when the client gives up, so that the server can be closed.
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	page := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }
	for name, tt := range map[string]struct {
		answer            http.HandlerFunc
		objects, problems int
		err               string // if no resource can be read
	}{
		"not found":                     {status(404, "NotFound"), 0, 0, ""},
		"forbidden":                     {status(403, "Forbidden"), 0, 0, "kubeapiservers.operator.openshift.io, openshiftapiservers.operator.openshift.io, "},
		"unauthorized":                  {status(401, "Unauthorized"), 0, 0, "Log in again"},
		"a plugin":                      {status(500, "InternalError"), 0, 0, ": a KMS plugin fails"},
		"unavailable":                   {status(503, "ServiceUnavailable"), 0, 0, "cannot be read: said"},
		"silent":                        {silent, 0, 0, "cannot be read: Get "},
		"another page":                  {page, 0, 0, "cannot be read"},
		"other resources are forbidden": {only(kube, apiServer, status(403, "Forbidden")), 1, 1, ""},
		"OpenShift's are forbidden where there are KMSHealths":  {only("kmshealths", kmsHealths, status(403, "Forbidden")), 1, 0, ""},
		"OpenShift's cannot be read where there are KMSHealths": {only("kmshealths", kmsHealths, status(500, "InternalError")), 1, 1, ""},
		"KMSHealths cannot be read where there are OpenShift's": {only(kube, apiServer, status(500, "InternalError")), 1, 1, ""},
		"no KMSHealths and no operator beside OpenShift's":      {only(kube, apiServer, status(404, "NotFound")), 1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := time.Minute
			if name == "silent" {
				timeout = 50 * time.Millisecond
			}
			s, err := cluster(t, timeout, tt.answer)
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Count(err.Error(), "cannot be read") != 1 {
					t.Errorf("%q, want %q", err, tt.err)
				}
			case err != nil || len(s.Objects) != tt.objects || len(s.Problems) != tt.problems:
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// only answers requests for one resource with a text, and passes the others on.
func only(resource, text string, others http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, resource) {
			others(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}

func TestAClusterIsEvaluatedByItsOwnClock(t *testing.T) {
	answer := only("kubeapiservers/cluster", apiServer, status(404, "NotFound"))
	s, err := cluster(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		answer(w, r)
	})
	if err != nil || time.Until(s.Now) < 59*time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
}
