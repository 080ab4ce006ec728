package publish

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// through sets these servers, in this order.
func through(timeout time.Duration, list ...*server) func(*Config) {
	return func(c *Config) {
		c.WriteTimeout.Duration = timeout
		for _, s := range list {
			c.Servers = append(c.Servers, v1alpha1.Server{URL: s.URL})
		}
	}
}

// three returns three servers, and credentials that all accept. The kubeconfig names another server.
func three(t *testing.T) (a, b, c *server, dir string) {
	a, b, c = newServer(t), newServer(t), newServer(t)
	dir = credentialFiles(t, a)
	replaceIn(t, dir+"/kubeconfig", a.URL, "https://nowhere.invalid:1")
	return a, b, c, dir
}

func fails(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "on purpose", code) }
}

// refuses answers with an API server's error.
func refuses(code int, message, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"details":{"name":%q}}`, message, name)
	}
}

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestServersAreTriedInOrderWithinOneWriteAndTheOneThatWorkedIsKept(t *testing.T) {
	const timeout = 9 * time.Second // a third of it for each server
	for name, broken := range map[string]func(s *server){
		"down":   func(s *server) { s.Close() },
		"500":    func(s *server) { s.answers(fails(500)) },
		"401":    func(s *server) { s.answers(fails(401)) },
		"no CRD": func(s *server) { s.answers(fails(404)) },
		// The load balancer may have sent this error, so another server is tried.
		"400 of a balancer": func(s *server) { s.answers(fails(400)) },
		"hangs":             func(s *server) { s.answers(hangs) },
		"without DNS":       func(s *server) { s.URL = "https://kubernetes.default.svc.invalid" },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, c, dir := three(t)
			broken(a)
			broken(b)
			lines := logLines(t)
			p := runAs(t, dir, through(timeout, a, b, c))
			began := time.Now()
			p.offer("1")
			c.next(t)
			if took := time.Since(began); took > timeout {
				t.Errorf("the first write took %s", took)
			}
			p.waitFor(t, Success, 1)
			asked := len(a.requests) + len(b.requests)
			p.offer("2")
			c.next(t)
			p.waitFor(t, Success, 2)
			if n := len(a.requests) + len(b.requests); n != asked {
				t.Errorf("the second write asked the broken servers %d times", n-asked)
			}
			if got := strings.Count(strings.Join(lines(), "\n"), "Another API server took the write"); got != 1 {
				t.Errorf("%d lines, want one that names the broken servers", got)
			}
			if got := strings.Count(string(p.metrics.Text()), contract.MetricWrites.Name+"{"); got != 1 {
				t.Errorf("%d results, want success alone", got)
			}
		})
	}
}

func TestFailureThatEveryServerWouldReturnEndsTheWrite(t *testing.T) {
	for kind, answer := range map[Kind]http.HandlerFunc{
		Invalid:  refuses(422, "invalid", ""),
		Conflict: refuses(409, "conflict", ""),
		NoObject: refuses(404, "not found", "cluster"),
	} {
		t.Run(string(kind), func(t *testing.T) {
			a, b, c, dir := three(t)
			a.answers(answer)
			p := runAs(t, dir, through(waitLimit, a, b, c))
			p.report(t, "1", kind, 2)
			if n := len(b.requests) + len(c.requests); n != 0 {
				t.Errorf("%d requests to other servers", n)
			}
			if text := p.awaitError(t); !strings.HasPrefix(text, a.URL+": ") {
				t.Error(text)
			}
		})
	}
}

func TestWhenAllServersFailTheErrorNamesEachAndTheKindIsTheLasts(t *testing.T) {
	a, b, c, dir := three(t)
	a.answers(hangs)
	b.Close()
	c.answers(fails(503))
	const timeout = 3 * time.Second
	p := runAs(t, dir, through(timeout, a, b, c))
	p.report(t, "1", ServerError, 1)
	text := p.awaitError(t)
	for _, want := range []string{fmt.Sprintf("%s: no answer within %s: ", a.URL, timeout/3), b.URL + ": dial tcp ", "connection refused", c.URL + ": 503 Service Unavailable: on purpose"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	a.answers(nil)
	p.waitFor(t, Success, 1)
}

func TestOrderOfServers(t *testing.T) {
	for name, tt := range map[string]struct {
		failed []int // servers that failed in the first write
		want   []int // the order in the next write
	}{
		"nothing failed":   {nil, []int{0, 1, 2}},
		"the first failed": {[]int{0}, []int{1, 2, 0}},
		"two failed":       {[]int{0, 1}, []int{2, 0, 1}},
		"all failed":       {[]int{0, 1, 2}, []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var o serverOrder
			o.next(3)
			for _, server := range tt.failed {
				o.failed(server)
			}
			if got := o.next(3); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	t.Run("a server is tried last for a number of writes", func(t *testing.T) {
		var o serverOrder
		o.next(2)
		o.failed(0)
		last := 0
		for ; o.next(2)[0] != 0; last++ {
		}
		if last != restWrites {
			t.Errorf("got %d writes, want %d", last, restWrites)
		}
	})
	t.Run("another number of servers begins anew", func(t *testing.T) {
		o := serverOrder{servers: []int{1, 0}, left: restWrites}
		if got := o.next(3); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("got %v", got)
		}
	})
}

func TestTLSServerNameIsTheServersAndNotTheKubeconfigs(t *testing.T) {
	a, _, _, dir := three(t)
	replaceIn(t, dir+"/kubeconfig", "certificate-authority:", "tls-server-name: wrong.invalid, certificate-authority:")
	for name, want := range map[string]Kind{"": Success, "example.com": Success, "other.example.org": TLSFailed} {
		p := runAs(t, dir, func(c *Config) { c.Servers = []v1alpha1.Server{{URL: a.URL, TLSServerName: name}} })
		p.report(t, "1", want, 1)
	}
}
