package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// apiServer returns kubeapiservers with a healthy report, and the Lease; other requests
// are forbidden or not found. It has its own clock. test/ uses a real API server; this one
// can have faults that a real one has not.
type apiServer struct {
	date      time.Time
	forbidden string    // a resource
	renewed   time.Time // of the Lease; zero: there is none
}

func (a apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", a.date.UTC().Format(http.TimeFormat))
	switch {
	case a.forbidden != "" && strings.Contains(r.URL.Path, a.forbidden):
		w.WriteHeader(http.StatusForbidden)
	case strings.HasSuffix(r.URL.Path, "/kubeapiservers/cluster"):
		_, _ = fmt.Fprintf(w, `{"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServer","metadata":{"name":"cluster"},"status":{"conditions":[
			{"type":"KMSHealthReporter_a","message":"[{\"keyID\":\"2\",\"kekID\":\"k\",\"status\":\"healthy\",\"lastChecked\":\"%s\"}]"},
			{"type":"KMSWriteKeyAgreed","status":"True","reason":"AsExpected","message":"said"}]}}`, a.date.UTC().Format(time.RFC3339))
	case strings.HasSuffix(r.URL.Path, "/namespaces/openshift-kms-health/leases/kms-health-operator") && !a.renewed.IsZero():
		_, _ = fmt.Fprintf(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"kms-health-operator"},"spec":{"leaseDurationSeconds":137,"renewTime":"%s"}}`, a.renewed.UTC().Format("2006-01-02T15:04:05.000000Z"))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// kubeconfig names a server that runs until the test ends.
func (a apiServer) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return kubeconfig(t, server.URL)
}

func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	sample, err := os.ReadFile("testdata/kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(sample), "http://127.0.0.1:1", url)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAClusterIsEvaluatedByItsOwnClock(t *testing.T) {
	code, stdout, stderr := command{}.run(t, "status", "--kubeconfig", apiServer{date: taken.Add(time.Hour)}.kubeconfig(t))
	if code != 0 || !strings.Contains(stdout, "healthy  k       0s") || stderr != "warning: this machine's clock is 60m behind the API server's; ages are by the API server's clock\n" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestForbiddenTargetsAreReportedAndOthersShown(t *testing.T) {
	code, stdout, stderr := command{}.run(t, "status", "--kubeconfig", apiServer{date: taken, forbidden: "authentications"}.kubeconfig(t))
	if code != 2 || !strings.Contains(stdout, "healthy") || !strings.Contains(stderr, "no right to get authentications") || strings.Contains(stderr, "openshiftapiservers") {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	code, _, stderr = command{}.run(t, "status", "--target=openshiftapiservers", "--kubeconfig", apiServer{date: taken}.kubeconfig(t))
	if code != exitFailed || !strings.Contains(stderr, "error: ") || !strings.Contains(stderr, "has none of openshiftapiservers.operator.openshift.io named cluster") {
		t.Errorf("%d, %q", code, stderr)
	}
}

func TestAStoppedOperatorIsReported(t *testing.T) {
	for name, tt := range map[string]struct {
		server          apiServer
		args            []string
		operatorStopped bool
	}{
		"alive":             {apiServer{date: taken, renewed: taken.Add(-time.Minute)}, nil, false},
		"not renewed":       {apiServer{date: taken, renewed: taken.Add(-20 * time.Minute)}, nil, true},
		"no lease":          {apiServer{date: taken}, nil, false},
		"forbidden":         {apiServer{date: taken, renewed: taken.Add(-time.Hour), forbidden: "leases"}, nil, false},
		"another namespace": {apiServer{date: taken, renewed: taken.Add(-time.Hour)}, []string{"--operator-namespace=other"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command{}.run(t, append([]string{"status", "--kubeconfig", tt.server.kubeconfig(t)}, tt.args...)...)
			want := ""
			if tt.operatorStopped {
				want = "warning: the operator has not renewed its Lease for 20m (Lease openshift-kms-health/kms-health-operator): its conditions may be outdated\n"
			}
			if code != 0 || stderr != want || strings.Contains(stdout, "by the reports") != tt.operatorStopped {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}
