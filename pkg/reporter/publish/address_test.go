package publish

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"
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
				showsNoPassword(t, "the error of "+server, p.awaitError(t))
				showsNoPassword(t, "the log", strings.Join(lines(), "\n"))
				showsNoPassword(t, "the metrics", string(p.metrics.Text()))
			})
		}
	}
}

// net/http reads the environment once in a process, by this package.
func TestNoPasswordOfTheEnvironmentsProxyIsShown(t *testing.T) {
	server := &url.URL{Scheme: "https", Host: "192.0.2.1:6443"}
	for _, proxy := range withPassword {
		u, err := (&httpproxy.Config{HTTPSProxy: proxy}).ProxyFunc()(server)
		u, err = checkProxy("proxy of the environment", u, err)
		switch {
		case err != nil:
			showsNoPassword(t, "the error of proxy "+proxy, err.Error())
		case u != nil:
			showsNoPassword(t, "the host of proxy "+proxy+", which errors show", u.Host)
		}
	}
}

func TestProxyGetsItsPasswordWhichIsNotShown(t *testing.T) {
	s := newServer(t)
	dir := credentialFiles(t, s)
	got := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.Header.Get("Proxy-Authorization")
		http.Error(w, "", http.StatusProxyAuthRequired)
	}))
	t.Cleanup(proxy.Close)
	replaceIn(t, dir+"/kubeconfig", "server:", "proxy-url: 'http://alice:s3cret@"+proxy.Listener.Addr().String()+"', server:")
	p := run(t, dir, waitLimit)
	p.offer("1")
	if request := <-got; request != "CONNECT Basic YWxpY2U6czNjcmV0" {
		t.Error(request)
	}
	p.waitFor(t, Unreachable, 1)
	showsNoPassword(t, "the error", p.awaitError(t))
}
