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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/doctor"
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

// broken is why a list of KMSHealths may fail. kube-apiserver answers 500 if they are encrypted
// with a plugin that fails.
var broken = map[string]struct {
	code    int
	problem string
}{
	"an error":  {500, "failed to list kmshealths of kmshealth.openshift.io: decrypting failed"},
	"no answer": {0, "cannot be reached: no answer within 500ms"},
	"no right":  {403, "no right to list kmshealths of kmshealth.openshift.io"},
}

// withoutOperatorResources is kms-health on plain Kubernetes.
func withoutOperatorResources(t *testing.T) *installation {
	t.Helper()
	c := newInstallation(t, "healthy.yaml")
	c.objects = append(slices.DeleteFunc(c.objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "KubeAPIServer" }),
		objectsOf(t, fmt.Sprintf(kmsHealth, "kube-apiserver"))...)
	file := c.find(t, "ConfigMap", "kms-health-operator-config")
	text, _, _ := unstructured.NestedString(file.Object, "data", "config.yaml")
	set(t, file, strings.ReplaceAll(text, "resource: kubeapiservers", "resource: kmshealths, encryptionConfig: {secret: encryption-config}"), "data", "config.yaml")
	return c
}

func (c *installation) serve(t *testing.T) (flags []string) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return []string{"--kubeconfig", kubeconfig(t, server.URL), "--request-timeout=500ms"}
}

func TestAFailedListOfKMSHealthsIsAnErrorWhereNothingElseIsFound(t *testing.T) {
	for name, tt := range broken {
		t.Run(name, func(t *testing.T) {
			c := withoutOperatorResources(t)
			c.failing, c.message = map[string]int{"kmshealths": tt.code}, "decrypting failed"
			code, stdout, stderr := command{}.run(t, append([]string{"status"}, c.serve(t)...)...)
			if code != exitFailed || stdout != "" || !strings.Contains(stderr, tt.problem) || strings.Contains(stderr, "has none of") || strings.Count(stderr, "\n") != 2 {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

// Rejected credentials are the problem of every request, and are reported once.
func TestRejectedCredentialsAreReportedOnce(t *testing.T) {
	c := withoutOperatorResources(t)
	c.failing = map[string]int{"kmshealths": 401, "kubeapiservers": 401, "openshiftapiservers": 401, "authentications": 401}
	if code, _, stderr := (command{}).run(t, append([]string{"status"}, c.serve(t)...)...); code != exitFailed || strings.Count(stderr, "rejected the credentials") != 1 {
		t.Errorf("%d, %q", code, stderr)
	}
}

func TestAFailedListOfKMSHealthsMakesAHealthyClusterUnknown(t *testing.T) {
	for name, tt := range broken {
		t.Run(name, func(t *testing.T) {
			c := newInstallation(t, "healthy.yaml")
			c.failing, c.message = map[string]int{"kmshealths": tt.code}, "decrypting failed"
			code, stdout, stderr := command{}.run(t, append([]string{"status"}, c.serve(t)...)...)
			wantCode, wantStderr := 2, tt.problem
			if tt.code == 403 { // who has no right to them has none
				wantCode, wantStderr = 0, ""
			}
			if code != wantCode || !strings.Contains(stdout, "kubeapiservers") || !strings.Contains(stderr, wantStderr) || (stderr == "") != (wantStderr == "") {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestTheDoctorReportsAFailedListOfKMSHealths(t *testing.T) {
	for name, tt := range broken {
		t.Run(name, func(t *testing.T) {
			c := withoutOperatorResources(t)
			c.failing, c.message = map[string]int{"kmshealths": tt.code}, "decrypting failed"
			d, code := diagnose(t, "", c.serve(t)...)
			rights, reports, installed := finding(d, doctor.Rights), finding(d, doctor.Reports), finding(d, doctor.Installed)
			if rights.Status != doctor.Unknown || !strings.HasSuffix(rights.Found, " kmshealths") || code != 2 {
				t.Errorf("%d, %+v", code, rights)
			}
			if reports.Status != doctor.Unknown || strings.Contains(reports.Found, "KMS is off") || !strings.Contains(reports.Found, "kmshealths") {
				t.Errorf("%+v", reports)
			}
			if installed.Status != doctor.OK { // the other resources are read all the same
				t.Errorf("%+v", installed)
			}

			c = newInstallation(t, "healthy.yaml")
			c.metrics = kmsMetrics("OK", 40)
			c.failing, c.message = map[string]int{"kmshealths": tt.code}, "decrypting failed"
			flags := c.serve(t)
			if d, code := diagnose(t, "", append(flags, "--target=kubeapiservers")...); code != 0 {
				t.Errorf("KMSHealths are not selected: %q", bad(d))
			}
			d, _ = diagnose(t, "", flags...)
			want := []string{"UNKNOWN Rights Failed "}
			if tt.code == 403 {
				want = nil
			}
			if diff := cmp.Diff(want, bad(d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
