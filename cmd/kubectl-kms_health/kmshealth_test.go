package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kmsHealth is an object of a cluster without OpenShift's operator resources, as JSON.
const kmsHealth = `{"apiVersion":"kmshealth.openshift.io/v1alpha1","kind":"KMSHealth","metadata":{"name":%q,"resourceVersion":"1"},"status":{"conditions":[
{"type":"KMSHealthReporter_master-0","status":"True","reason":"AsExpected","lastTransitionTime":"2026-05-08T12:00:00Z",
"message":"[{\"keyID\":\"1\",\"kekID\":\"k\",\"status\":\"unhealthy\",\"lastChecked\":\"2026-05-08T12:34:50Z\",\"detail\":\"sealed\",\"intervalSeconds\":30}]"}]}}`

// plainCluster has two KMSHealths, and nothing of OpenShift. Who may list them gets 403 for all
// else, if forbidden.
func plainCluster(t *testing.T, code int) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const own = "/apis/kmshealth.openshift.io/v1alpha1/kmshealths"
		name, isObject := strings.CutPrefix(r.URL.Path, own+"/")
		switch {
		case r.URL.Path == own:
			fmt.Fprintf(w, `{"apiVersion":"kmshealth.openshift.io/v1alpha1","kind":"KMSHealthList","metadata":{"resourceVersion":"1"},"items":[`+kmsHealth+`,`+kmsHealth+`]}`, "kube-apiserver", "other")
		case isObject:
			fmt.Fprintf(w, kmsHealth, name)
		default:
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, map[int]string{404: "NotFound", 403: "Forbidden"}[code], code)
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: %q}}]\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func TestKMSHealthsAreShownWhereThereIsNoOperatorResource(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		kubeconfig := plainCluster(t, code)
		for selection, want := range map[string][]string{
			"": {"kmshealths/kube-apiserver", "kmshealths/other"}, "--target=kmshealths": {"kmshealths/kube-apiserver", "kmshealths/other"},
			"--target=kube-apiserver": {"kmshealths/kube-apiserver"}, "--target=kmshealths/other": {"kmshealths/other"},
		} {
			args := []string{"status", "--kubeconfig", kubeconfig}
			if selection != "" {
				args = append(args, selection)
			}
			_, stdout, stderr := command{}.run(t, args...)
			for _, name := range []string{"kmshealths/kube-apiserver", "kmshealths/other"} {
				if got := strings.Contains(stdout, name); got != strings.Contains(strings.Join(want, " "), name) {
					t.Errorf("%d, %s: %s is shown: %t\n%s%s", code, selection, name, got, stdout, stderr)
				}
			}
			if !strings.Contains(stdout, "sealed") {
				t.Errorf("%d, %s:\n%s%s", code, selection, stdout, stderr)
			}
		}
	}
	_, stdout, stderr := command{}.run(t, "status", "--kubeconfig", plainCluster(t, 404), "--target=kmshealths/none")
	if stdout != "" || !strings.Contains(stderr, "has no kmshealths/none") {
		t.Errorf("%q, %q", stdout, stderr)
	}
}

// A cluster may have both: OpenShift's API servers, and those of an owner, each with a KMSHealth.
func TestKMSHealthsAreShownBesideOperatorResources(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	c.metrics = kmsMetrics("Unavailable", 3)
	for _, name := range []string{"own", "own-2"} {
		c.objects = append(c.objects, objectsOf(t, fmt.Sprintf(kmsHealth, name))...)
	}
	live, _ := c.live(t)
	if diff := cmp.Diff(live, c.gathered(t)); diff != "" {
		t.Error(diff)
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	flags := []string{"--kubeconfig", kubeconfig(t, server.URL)}
	for _, tt := range []struct {
		command string
		target  []string
		want    []string
	}{
		{"status", nil, []string{"kubeapiservers", "kmshealths/own"}},
		{"status", []string{"--target=kubeapiservers"}, []string{"kubeapiservers"}},
		{"status", []string{"--target=kmshealths"}, []string{"kmshealths/own"}},
		{"doctor", nil, []string{"kubeapiservers", "kmshealths/own"}},
		{"doctor", []string{"--target=kubeapiservers"}, []string{"kubeapiservers"}},
		{"doctor", []string{"--target=kmshealths/own"}, []string{"kmshealths/own"}},
	} {
		for _, from := range [][]string{flags, {"--from-file", c.folder(t), at}} {
			_, stdout, stderr := command{}.run(t, slices.Concat([]string{tt.command}, tt.target, from)...)
			for _, name := range []string{"kubeapiservers", "kmshealths/own"} {
				if strings.Contains(stdout, name) != slices.Contains(tt.want, name) {
					t.Errorf("%s %s %s: %s\n%s%s", tt.command, tt.target, from, name, stdout, stderr)
				}
			}
		}
	}
	c.forbidden = []string{"kmshealths"}
	if code, stdout, stderr := (command{}).run(t, append([]string{"status"}, flags...)...); code != 0 || stderr != "" || !strings.Contains(stdout, "kubeapiservers") {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestKMSHealthsAreReadFromFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cluster-scoped-resources/kmshealth.openshift.io/kmshealths")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "kube-apiserver.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(kmsHealth, "kube-apiserver")), 0o600); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "cluster-scoped-resources/kmshealth.openshift.io/kmshealths.yaml") // as gathered by kubectl
	if err := os.MkdirAll(filepath.Dir(list), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, []byte(`{"apiVersion":"v1","kind":"List","items":[`+fmt.Sprintf(kmsHealth, "kube-apiserver")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Dir(filepath.Dir(folder)), filepath.Dir(list)} {
		if _, stdout, stderr := (command{}).run(t, "status", "--from-file", path); !strings.Contains(stdout, "kmshealths/kube-apiserver") {
			t.Errorf("%s: %q, %q", path, stdout, stderr)
		}
	}
}
