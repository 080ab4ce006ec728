package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

func TestMain(m *testing.M) {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{"--logtostderr=false", "--one_output", "--stderrthreshold=FATAL"}); err != nil {
		panic(err)
	}
	klog.SetOutput(&lines)
	goleak.VerifyTestMain(m)
}

// lines are the logged lines.
var lines logOfTests

type logOfTests struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logOfTests) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// logged returns how many lines contain all texts; one of them identifies the test.
func logged(texts ...string) (n int) {
	klog.Flush()
	lines.mu.Lock()
	defer lines.mu.Unlock()
	for line := range strings.Lines(lines.text.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			n++
		}
	}
	return n
}

const patience = 20 * time.Second

func run(t *testing.T, config *v1alpha1.Serving) *Server {
	t.Helper()
	s := New(func() View { return View{Configured: true} }, prometheus.NewRegistry())
	s.Apply(config)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(time.Millisecond) // no notification when the listener is open
	}
}

func (s *Server) await(t *testing.T) string {
	t.Helper()
	eventually(t, "the server listens", func() bool { return s.Address() != "" })
	return s.Address()
}

func get(t *testing.T, url string, config *tls.Config) (*http.Response, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get(url)
	if err == nil {
		_ = response.Body.Close()
	}
	return response, err
}

// body returns the code and text of a response; without one, 0 and the error.
func body(t *testing.T, url string, config *tls.Config) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func TestPlainHTTPOnLoopback(t *testing.T) {
	s := run(t, &v1alpha1.Serving{Address: "127.0.0.1:0"})
	r, err := get(t, "http://"+s.await(t)+"/readyz", nil)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r, err)
	}
	s.Apply(nil)
	eventually(t, "the server is off", func() bool { return s.Address() == "" })
}

func TestPortInUseIsTriedAgain(t *testing.T) {
	t.Parallel() // it waits
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := run(t, &v1alpha1.Serving{Address: taken.Addr().String()})
	eventually(t, "the failure is counted", func() bool { return testutil.ToFloat64(s.failing) == 1 })
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	s.await(t)
	if testutil.ToFloat64(s.failing) != 0 {
		t.Error("still counted as failing")
	}
}
