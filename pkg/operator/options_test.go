package operator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/serverclock"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

func TestEachMistakeIsReportedWithItsFlag(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string // empty: valid
	}{
		"defaults":         {func(*Options) {}, ""},
		"standard input":   {func(o *Options) { o.ConfigFile = "-" }, `--config: "-"`},
		"no configuration": {func(o *Options) { o.ConfigFile = "" }, `--config: ""`},
		"namespace":        {func(o *Options) { o.Namespace = "a b" }, `--namespace: "a b"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{ConfigFile: "/config.yaml", Namespace: "kms-health"}
			c.change(&o)
			got := ""
			if err := o.Validate(); err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || strings.Contains(got, "\n") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// answer is the code of every response.
type answer int

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Header: http.Header{"Retry-After": {"5"}}}, nil
}

func TestStartingAPIServersReadsAreNotDelayedByClientGo(t *testing.T) {
	for _, c := range []struct {
		method string
		code   answer
		kept   bool
	}{{http.MethodGet, 503, false}, {http.MethodGet, 429, false}, {http.MethodPatch, 503, true}} {
		response, err := unretried{c.code}.RoundTrip(&http.Request{Method: c.method})
		if err != nil || (response.Header.Get("Retry-After") != "") != c.kept {
			t.Errorf("%+v: %v, %v", c, response.Header, err)
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
		disk.Write(t, file, []byte(text))
		if ca, err := caOf(config); err != nil || string(ca) != text {
			t.Errorf("%q, %v", ca, err)
		}
	}
	config.CAData = []byte("inline")
	if ca, err := caOf(config); err != nil || string(ca) != "inline" {
		t.Errorf("%q, %v", ca, err)
	}
}

func kubeconfigOf(t *testing.T, server string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: " +
		"c}}]\nclusters: [{name: c, cluster: {server: '" + server + "'}}]\n"
	disk.Write(t, file, []byte(text))
	return file
}

func TestRestConfigOfAKubeconfig(t *testing.T) {
	file := kubeconfigOf(t, "https://a.test:6443")
	if c, err := restConfig(file, "v1"); err != nil || c.Host != "https://a.test:6443" ||
		c.UserAgent != "kms-health-operator/v1" {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := restConfig("", "v1"); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Error(err)
	}
}

// A starting node drops packets. client-go then retries for half a minute, and returns a watch without events, and no
// error.
func TestWatchOfAServerThatDropsPacketsIsUnanswered(t *testing.T) {
	listener, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must.Succeed(t, err)
	defer func() { _ = syscall.Close(listener) }()
	if err := errors.Join(syscall.Bind(listener, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(listener, 0)); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(listener)
	must.Succeed(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.(*syscall.SockaddrInet4).Port))
	for range 10 { // until the backlog is full
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	config, err := restConfig(kubeconfigOf(t, "https://"+address), "v1")
	must.Succeed(t, err)
	now := serverclock.New(clock.RealClock{})
	config.Wrap(now.Wrap)
	client, err := dynamic.NewForConfig(config)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	go func() {
		_, err := client.Resource(informers.Nodes).Watch(ctx, metav1.ListOptions{})
		returned <- err
	}()
	for now.Unanswered().IsZero() {
		select {
		case err := <-returned:
			t.Fatalf("the watch returned before: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-returned; err == nil {
		t.Error("the watch that was given up returned no error")
	}
}
