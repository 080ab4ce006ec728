package publish

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// withPassword are URLs of the user "alice" with the password "s3cret" or parts of it,
// in common spellings.
var withPassword = []string{
	"https://alice:s3cret@127.0.0.1:1", "https://alice@127.0.0.1:1", "alice:s3cret@127.0.0.1:1", "//alice:s3cret@127.0.0.1:1",
	"https:alice:s3cret@127.0.0.1:1", "https:/alice:s3cret@127.0.0.1:1", "https://alice:s3cret@127.0.0.1:port",
	"https://alice:s3cret%zz@127.0.0.1:1", "https://alice:s3/cret@127.0.0.1:1", "https://alice:1/s3cret@127.0.0.1:1",
	"https://alice:1#s3cret@127.0.0.1:1", "https://alice:1?s3cret@127.0.0.1:1", "https://alice:s3 cret@127.0.0.1:1",
	`https://alice:s3"cret@127.0.0.1:1`, `https://alice:s3\cret@127.0.0.1:1`, "https://alice:s3@cret@127.0.0.1:1",
	"https://alice:s3\ncret@127.0.0.1:1", "https://alice:s3\x01cret@127.0.0.1:1", "ftp://alice:s3cret@127.0.0.1:1",
	"https://alice:s3cret@[::1", "https://alice:s3cret@", "https://alice%3As3cret%40127.0.0.1:1",
}

func showsNoPassword(t *testing.T, where, text string) {
	t.Helper()
	for _, part := range []string{"alice", "s3", "cret"} {
		if strings.Contains(text, part) {
			t.Errorf("%q is in %s: %s", part, where, text)
		}
	}
}

func TestNoPasswordOfAURLIsShown(t *testing.T) {
	s := newServer(t)
	for i, server := range withPassword {
		for _, field := range []string{"server", "proxy-url"} {
			t.Run(fmt.Sprint(field, i), func(t *testing.T) {
				lines, dir := logLines(t), credentialFiles(t, s)
				quoted := "'" + strings.NewReplacer("\n", "\n\n ", "\x01", "%01").Replace(server) + "'"
				if field == "server" {
					replaceIn(t, dir+"/kubeconfig", `"`+s.URL+`"`, quoted)
				} else {
					replaceIn(t, dir+"/kubeconfig", "server:", "proxy-url: "+quoted+", server:")
				}
				p := run(t, dir, waitLimit)
				p.offer("1")
				p.statusBecomes(t, "a failure", func(s Status) bool { return s.LastError != "" })
				status := p.Status()
				showsNoPassword(t, "the status of "+server, status.LastError+status.Server)
				showsNoPassword(t, "the log", strings.Join(lines(), "\n"))
				showsNoPassword(t, "the metrics", p.series(t))
			})
		}
	}
}

// The environment is read once in a process, so each case runs in a child process.
func TestNoPasswordOfTheEnvironmentsProxyIsShown(t *testing.T) {
	const marker = "PUBLISH_TEST_ENVIRONMENT_PROXY"
	if os.Getenv(marker) != "" {
		request, err := http.NewRequest(http.MethodGet, "https://192.0.2.1:6443", nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := newEndpoint(&rest.Config{}, request.URL, environmentProxy)
		if err != nil {
			t.Fatal(err)
		}
		defer e.disconnect()
		t.Log("result: ", e.apply(t.Context(), operatorcr.Of("kubeapiservers"), "m", nil, 100*time.Millisecond))
		return
	}
	for _, proxy := range withPassword {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), marker+"=1", "GORACE=atexit_sleep_ms=0", "HTTPS_PROXY="+proxy)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "result: ") {
			t.Fatalf("%v: %s", err, out)
		}
		showsNoPassword(t, "the error of proxy "+proxy, string(out))
	}
}

func TestProxyGetsItsPasswordWhichIsNotShown(t *testing.T) {
	s := newServer(t)
	dir := credentialFiles(t, s)
	got := make(chan string, 100)
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.Header.Get("Proxy-Authorization")
		http.Error(w, "", http.StatusProxyAuthRequired)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = proxy.Serve(listener) }()
	t.Cleanup(func() { _ = proxy.Close(); <-done })
	replaceIn(t, dir+"/kubeconfig", "server:", "proxy-url: 'http://alice:s3cret@"+listener.Addr().String()+"', server:")
	p := run(t, dir, waitLimit)
	p.offer("1")
	if request := <-got; request != "CONNECT Basic YWxpY2U6czNjcmV0" {
		t.Error(request)
	}
	p.waitFor(t, Unreachable, 1)
	p.statusBecomes(t, "a failure", func(s Status) bool { return s.LastError != "" })
	showsNoPassword(t, "the status", p.Status().LastError)
}
