package publish

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// through configures these servers, in this order.
func through(timeout, retry time.Duration, list ...*server) func(*Config) {
	return func(c *Config) {
		c.Timeout, c.RetryPreferred = timeout, retry
		for _, s := range list {
			c.Servers = append(c.Servers, v1alpha1.Server{URL: s.URL})
		}
	}
}

// three returns servers, and credentials for all of them whose kubeconfig names another.
func three(t *testing.T) (a, b, c *server, dir string) {
	a, b, c = newServer(t), newServer(t), newServer(t)
	dir = credentialFiles(t, a)
	replaceIn(t, dir+"/kubeconfig", a.URL, "https://nowhere.invalid:1")
	return a, b, c, dir
}

func fails(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "on purpose", code) }
}

// refuses answers with an error of an API server.
func refuses(code int, message, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"details":{"name":%q}}`, message, name)
	}
}

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func (r *running) statusBecomes(t *testing.T, what string, ok func(Status) bool) {
	t.Helper()
	deadline := time.Now().Add(waitLimit)
	for !ok(r.Status()) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v", what, r.Status())
		}
		time.Sleep(time.Millisecond)
	}
}

func TestServersAreTriedInOrderWithinOneWriteAndTheOneThatWorkedIsKept(t *testing.T) {
	for name, broken := range map[string]func(s *server){
		"down":   func(s *server) { s.Close() },
		"500":    func(s *server) { s.answers(fails(500)) },
		"401":    func(s *server) { s.answers(fails(401)) },
		"no CRD": func(s *server) { s.answers(fails(404)) },
		// A load balancer's error might not be an API server's.
		"400 of a balancer": func(s *server) { s.answers(fails(400)) },
		"409 of a balancer": func(s *server) { s.answers(fails(409)) },
		"422 of a balancer": func(s *server) { s.answers(fails(422)) },
		"hangs":             func(s *server) { s.answers(hangs) },
	} {
		t.Run(name, func(t *testing.T) {
			lines := logLines(t)
			a, b, c, dir := three(t)
			broken(a)
			broken(b)
			p := runAs(t, dir, through(900*time.Millisecond, time.Hour, a, b, c))
			began := time.Now()
			p.offer("1")
			c.next(t)
			if took := time.Since(began); took > 2*time.Second {
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
			if got := testutil.CollectAndCount(p.metrics.writes); got != 1 {
				t.Errorf("%d results, want success alone", got)
			}
			s := p.Status()
			if s.Server != c.URL || s.Preferred || s.LastError != "" || s.PreferredError == "" || strings.HasPrefix(s.PreferredError, a.URL) {
				t.Errorf("%+v", s)
			}
			text := strings.Join(lines(), "\n")
			if n := strings.Count(text, "Writing reports through another API server"); n != 1 || !strings.Contains(text, fmt.Sprintf(`"server"=%q "previous"=%q`, c.URL, a.URL)) {
				t.Errorf("logged %d changes of server: %s", n, text)
			}
		})
	}
}

func TestFailureThatEveryServerWouldReturnEndsTheWrite(t *testing.T) {
	for kind, answer := range map[Kind]http.HandlerFunc{
		Invalid:  refuses(422, "invalid", ""),
		Conflict: refuses(409, "conflict", ""),
		NoObject: refuses(404, "not found", "cluster"),
		NoField:  refuses(500, ".status.encryptionStatus: field not declared in schema", ""),
	} {
		t.Run(string(kind), func(t *testing.T) {
			a, b, c, dir := three(t)
			a.answers(answer)
			p := runAs(t, dir, through(waitLimit, time.Hour, a, b, c))
			p.offer("1")
			p.waitFor(t, kind, 2)
			if n := len(b.requests) + len(c.requests); n != 0 {
				t.Errorf("%d requests to other servers", n)
			}
			if s := p.Status(); s.Server != a.URL || !s.Preferred || !strings.HasPrefix(s.LastError, a.URL+": ") {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestWhenAllServersFailTheErrorNamesEachAndTheKindIsTheLasts(t *testing.T) {
	a, b, c, dir := three(t)
	a.answers(hangs)
	b.Close()
	c.answers(fails(503))
	const timeout = 600 * time.Millisecond
	p := runAs(t, dir, through(timeout, time.Hour, a, b, c))
	began := time.Now()
	p.offer("1")
	p.waitFor(t, ServerError, 1)
	if took := time.Since(began); took > timeout+200*time.Millisecond {
		t.Errorf("a write took %s, the timeout is %s", took, timeout)
	}
	p.statusBecomes(t, "all have failed", func(s Status) bool { return s.LastError != "" })
	text := p.Status().LastError
	for _, want := range []string{a.URL + ": no answer within ", b.URL + ": dial tcp ", "connection refused", c.URL + ": 503 Service Unavailable: on purpose"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	a.answers(nil)
	p.waitFor(t, Success, 1)
	if s := p.Status(); s.Server != a.URL || !s.Preferred || s.LastError != "" || s.PreferredError != "" {
		t.Errorf("%+v", s)
	}
}

func TestEarlierServerIsUsedAgainWhenItWorks(t *testing.T) {
	a, b, c, dir := three(t)
	a.answers(fails(503))
	b.answers(fails(503))
	const retry = 100 * time.Millisecond
	p := runAs(t, dir, through(waitLimit, retry, a, b, c))
	series := func(want ...string) {
		t.Helper()
		for i, s := range []*server{a, b, c} {
			want := fmt.Sprintf(`kms_health_reporter_server_active{form="Condition",server=%q} %s`, s.URL, want[i])
			p.seriesBecomes(t, want)
		}
	}
	p.offer("1")
	c.next(t)
	p.waitFor(t, Success, 1)
	series("0", "0", "1")

	b.answers(nil)
	time.Sleep(retry)
	p.offer("2") // is sent to the last server used, and then to the earlier ones
	if got := c.next(t); got.keyIDs[0] != "2" {
		t.Errorf("wrote %v", got.keyIDs)
	}
	p.statusBecomes(t, "the second is used", func(s Status) bool { return s.Server == b.URL && !s.Preferred })
	series("0", "1", "0")

	a.answers(nil)
	time.Sleep(retry)
	p.offer("3")
	p.statusBecomes(t, "the first is used", func(s Status) bool { return s.Server == a.URL && s.Preferred && s.PreferredError == "" })
	series("1", "0", "0")
	if got := testutil.ToFloat64(p.metrics.writes.WithLabelValues("Condition", string(Success))); got != 3 {
		t.Errorf("%v writes are counted, want 3: a retry does not count", got)
	}
}

func TestReportDoesNotWaitForTheRetryOfAServerThatHangs(t *testing.T) {
	a, b, _, dir := three(t)
	a.answers(fails(503))
	p := runAs(t, dir, through(waitLimit, time.Millisecond, a, b))
	p.offer("1")
	b.next(t)
	p.waitFor(t, Success, 1)
	a.answers(hangs)
	for i := range 5 {
		began := time.Now()
		p.offer("2")
		b.next(t)
		p.waitFor(t, Success, 2+i)
		if took := time.Since(began); took > time.Second {
			t.Errorf("report %d took %s", i, took)
		}
	}
}

// The first never answers, so its retry takes until the next report.
func TestEarlierServerBehindOneThatHangsIsUsedAgainWhenItWorks(t *testing.T) {
	for name, pause := range map[string]time.Duration{
		"reports that end a retry": 50 * time.Millisecond, "retries that end by themselves": 3 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			a, b, c, dir := three(t)
			a.answers(hangs)
			b.answers(fails(500))
			p := runAs(t, dir, through(2*time.Second, time.Millisecond, a, b, c))
			p.offer("1")
			p.statusBecomes(t, "the third is used", func(s Status) bool { return s.Server == c.URL })
			b.answers(nil)
			next := time.Now()
			p.statusBecomes(t, "the second is used", func(s Status) bool {
				if time.Now().After(next) {
					p.offer("2")
					next = time.Now().Add(pause)
				}
				return s.Server == b.URL
			})
		})
	}
}

func TestSeriesOfServersEndWithTheirPublisher(t *testing.T) {
	a, b, c, dir := three(t)
	p := runAs(t, dir, through(waitLimit, time.Hour, a, b))
	p.seriesBecomes(t, fmt.Sprintf(`server=%q} 1`, a.URL))
	config := p.config
	config.Servers = []v1alpha1.Server{{URL: c.URL}}
	next := New(config, p.metrics)
	text := p.series(t)
	if strings.Contains(text, a.URL) || strings.Contains(text, b.URL) || !strings.Contains(text, c.URL) {
		t.Error(text)
	}
	p.metrics.remove(p.Publisher) // as its Run does when it ends, after the next has begun
	if text := p.series(t); !strings.Contains(text, c.URL) {
		t.Error(text)
	}
	p.metrics.remove(next)
	if text := p.series(t); strings.Contains(text, c.URL) {
		t.Error(text)
	}
}

func TestTLSServerNameIsTheServersAndNotTheKubeconfigs(t *testing.T) {
	a, _, _, dir := three(t)
	replaceIn(t, dir+"/kubeconfig", "certificate-authority:", "tls-server-name: wrong.invalid, certificate-authority:")
	for name, want := range map[string]Kind{"": Success, "example.com": Success, "other.example.org": TLSFailed} {
		p := runAs(t, dir, func(c *Config) { c.Servers = []v1alpha1.Server{{URL: a.URL, TLSServerName: name}} })
		p.offer("1")
		p.waitFor(t, want, 1)
	}
}

// series returns the metrics in Prometheus' text format.
func (r *running) series(t *testing.T) string {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			b.WriteString(f.GetName() + "{")
			for i, l := range m.GetLabel() {
				if i > 0 {
					b.WriteString(",")
				}
				fmt.Fprintf(&b, "%s=%q", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&b, "} %v\n", m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	return b.String()
}

func (r *running) seriesBecomes(t *testing.T, want string) {
	t.Helper()
	deadline := time.Now().Add(waitLimit)
	for !strings.Contains(r.series(t), want+"\n") {
		if time.Now().After(deadline) {
			t.Fatalf("no %s in\n%s", want, r.series(t))
		}
		time.Sleep(time.Millisecond)
	}
}
