package operator

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func valid() Options {
	return Options{
		ConfigFile: "/config.yaml", Namespace: "kms-health", KubeletRoot: "/var/lib/kubelet",
		MetricsAddress: ":8443", HealthAddress: none, DegradedInertia: time.Minute,
	}
}

func TestEachMistakeIsReportedWithItsFlag(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   []string // empty: valid
	}{
		"defaults":       {func(*Options) {}, nil},
		"standard input": {func(o *Options) { o.ConfigFile = "-" }, []string{`--config: "-"`}},
		"no config":      {func(o *Options) { o.ConfigFile = "" }, []string{`--config: ""`}},
		"relative root": {
			func(o *Options) { o.KubeletRoot = "kubelet" },
			[]string{`--kubelet-root: "kubelet" must be an absolute path`},
		},
		"negative inertia": {func(o *Options) { o.DegradedInertia = -time.Second }, []string{"--degraded-inertia: -1s"}},
		"no inertia":       {func(o *Options) { o.DegradedInertia = 0 }, nil},
		"namespace":        {func(o *Options) { o.Namespace = "a b" }, []string{`--namespace: "a b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid()
			c.change(&o)
			var lines []string
			if err := o.Validate(); err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(c.want) {
				t.Fatalf("%q, want %q", lines, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("%q, want %q", lines[i], want)
				}
			}
		})
	}
}

type answer struct {
	code   int
	header http.Header
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: a.header.Clone()}, nil
}

func TestStartingAPIServersReadsAreNotDelayedByClientGo(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		code   int
		kept   bool
	}{
		"a read":           {http.MethodGet, 503, false},
		"a throttled read": {http.MethodGet, 429, false},
		"a write":          {http.MethodPatch, 503, true},
	} {
		response, err := unretried{
			answer{c.code, http.Header{"Retry-After": {"5"}}},
		}.RoundTrip(&http.Request{Method: c.method})
		if err != nil || (response.Header.Get("Retry-After") != "") != c.kept {
			t.Errorf("%s: %v, %v", name, response.Header, err)
		}
	}
}

func TestCAIsReadAgainFromItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: file}}
	if _, err := caOf(config); err == nil {
		t.Error("no error for a missing file")
	}
	for _, text := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if ca, err := caOf(config); err != nil || string(ca) != text {
			t.Errorf("%q, %v", ca, err)
		}
	}
	config.CAData = []byte("inline")
	if ca, err := caOf(config); err != nil || string(ca) != "inline" {
		t.Errorf("%q, %v", ca, err)
	}
}

func TestRestConfigOfAKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: " +
		"c}}]\nclusters: [{name: c, cluster: {server: 'https://a.test:6443'}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := restConfig(file, "v1"); err != nil || c.Host != "https://a.test:6443" ||
		c.UserAgent != "kms-health-operator/v1" {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := restConfig("", "v1"); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Error(err)
	}
}
