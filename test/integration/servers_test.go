//go:build integration

package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// standIn is a server with a certificate of the API server's CA.
func standIn(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	pair, err := cluster.ServingCA().Serving("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(answer)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// balancer gives each new TCP connection to the next of its servers.
type balancer struct {
	servers  []string
	listener net.Listener
	next     int

	mu    sync.Mutex
	conns []net.Conn
}

func newBalancer(t *testing.T, servers ...string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{servers: servers, listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", b.servers[b.next%len(b.servers)])
			b.next++
			if err != nil {
				_ = client.Close()
				continue
			}
			b.mu.Lock()
			b.conns = append(b.conns, client, server)
			b.mu.Unlock()
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				running.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = listener.Close(); b.rebalance(); running.Wait() })
	return b
}

func (b *balancer) url() string { return "https://" + b.listener.Addr().String() }

// rebalance ends every connection.
func (b *balancer) rebalance() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
}

// destination writes a configuration with these servers, or without for the kubeconfig's.
func (r *reporter) destination(resource string, servers ...string) {
	r.t.Helper()
	list := ""
	for _, s := range servers {
		list += fmt.Sprintf("\n  - {url: '%s'}", s)
	}
	if list != "" {
		list = "\n  servers:" + list
	}
	r.write(fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: 1s}
serving: {address: '%s'}
destination:
  resource: %s
  kubeconfig: %s
  writeTimeout: 2s%s
plugins:
- {endpoint: '%s', role: Write}
`, r.serving, resource, filepath.Join(r.credentialDir(), controlplane.KubeconfigFile), list, r.endpoint("1")))
}

// credentialsFor gives the reporter a token, and a kubeconfig that names a server.
func (r *reporter) credentialsFor(server string) {
	r.t.Helper()
	token, err := cluster.ServiceAccountToken(soon(r.t), namespace, short(r.node), controlplane.TokenOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.credentials(controlplane.Kubeconfig{Server: server, Credential: controlplane.Credential{Token: token}})
}

// slowest follows the condition for a time, and returns the longest that it did not move.
func (r *reporter) slowest(resource string, last time.Time, run time.Duration, during func()) (reports int, slowest time.Duration) {
	r.t.Helper()
	moved := time.Now()
	for end := moved.Add(run); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // another process writes
		during()
		e := entries(r.t, resource, r.node)
		slowest = max(slowest, time.Since(moved))
		if len(e) > 0 && e[0].LastChecked.After(last) {
			last, moved = e[0].LastChecked, time.Now()
			reports++
		}
	}
	return reports, slowest
}

func TestReportsReachTheOneGoodServerBehindABalancer(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	var asked, hung atomic.Int32
	answers500 := standIn(t, func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); http.Error(w, "broken", 500) })
	hangs := standIn(t, func(_ http.ResponseWriter, q *http.Request) {
		hung.Add(1)
		_, _ = io.Copy(io.Discard, q.Body)
		<-q.Context().Done()
	})
	b := newBalancer(t, cluster.Address(), answers500, hangs)
	r := newReporter(t, resource)
	r.plugin("1")
	r.credentialsFor(b.url())
	r.destination(resource)
	r.start()
	first := r.freshCondition(resource, "1=healthy")

	const run, period = 20 * time.Second, 6 * time.Second
	rebalanced := time.Now()
	reports, slowest := r.slowest(resource, first[0].LastChecked, run, func() {
		if time.Since(rebalanced) > period {
			rebalanced = time.Now()
			b.rebalance()
		}
	})
	const name = "kms_health_reporter_writes_total"
	succeeded := r.metric(name, "form", "Condition", "result", "success")
	var failed float64
	for _, kind := range []string{"server_error", "timeout", "unreachable"} {
		failed += r.metric(name, "form", "Condition", "result", kind)
	}
	t.Logf("%s at an interval of 1s, all connections cut every %s: %d of %.0f writes succeeded, %d reports found, the slowest %s after the one before (500s: %d, unanswered: %d)",
		run, period, int(succeeded), succeeded+failed, reports, slowest.Round(10*time.Millisecond), asked.Load(), hung.Load())
	if asked.Load() == 0 || hung.Load() == 0 {
		t.Errorf("the broken servers got no request: %d, %d", asked.Load(), hung.Load())
	}
	// At worst an answer of 500, a write that hangs for its 2s, and the waits after each.
	if bound := 6 * time.Second; slowest > bound {
		t.Errorf("a report came %s after the one before, want at most %s", slowest, bound)
	}
}

func TestReportsGoThroughTheSecondServerWhileTheFirstIsDown(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	for _, mode := range []controlplane.ProxyMode{controlplane.Refuse, controlplane.BlackHole} {
		t.Run(mode.String(), func(t *testing.T) {
			first, second := proxy(t), proxy(t)
			r := newReporter(t, resource)
			r.plugin("1")
			r.credentialsFor("https://127.0.0.1:1") // not used
			r.destination(resource, first.URL(), second.URL())
			r.start()
			last := r.freshCondition(resource, "1=healthy")
			if n := second.Accepted(); n != 0 {
				t.Errorf("%d connections to the second server while the first works", n)
			}
			if err := first.SetMode(mode); err != nil {
				t.Fatal(err)
			}
			if mode == controlplane.Refuse {
				first.ResetConnections()
			}
			reports, slowest := r.slowest(resource, last[0].LastChecked, 5*time.Second, func() {})
			t.Logf("%d reports in 5s, the slowest %s after the one before", reports, slowest.Round(10*time.Millisecond))
			// A hanging server gets half of the timeout of 2s.
			if bound := 3500 * time.Millisecond; slowest > bound {
				t.Errorf("a report came %s after the one before, want at most %s", slowest, bound)
			}
			r.logged("Writing reports through another API server", `server="`+second.URL()+`"`, `previous="`+first.URL()+`"`)
			if r.metric("kms_health_reporter_server_active", "server", first.URL()) != 0 || r.metric("kms_health_reporter_server_active", "server", second.URL()) != 1 {
				_, text := r.get("/metrics")
				t.Error(text)
			}
			if n := r.count("Failed to write reports"); n != 0 {
				t.Errorf("%d failures are logged, though the second server took every write", n)
			}
		})
	}
}

func TestFirstServerIsUsedAgainWhenItIsBackWithoutAnotherWriteToEtcd(t *testing.T) {
	const resource, retry = controlplane.KubeAPIServers, 300 * time.Millisecond
	first, second := proxy(t), proxy(t)
	if err := first.SetMode(controlplane.Refuse); err != nil {
		t.Fatal(err)
	}
	r := newReporter(t, resource)
	r.token()
	p := publish.New(publish.Config{
		Form: publish.Condition, Resource: operatorcr.Of(resource), Node: r.node, Kubeconfig: filepath.Join(r.credentialDir(), controlplane.KubeconfigFile),
		Servers: []v1alpha1.Server{{URL: first.URL()}, {URL: second.URL()}},
		Timeout: waitLimit, UserAgent: "kms-health-reporter/test", Since: sync.OnceValue(time.Now), RetryPreferred: retry,
	}, publish.NewMetrics(prometheus.NewRegistry()))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	changes, err := operatorResource(t, resource).Watch(ctx, metav1.ListOptions{ResourceVersion: object(t, resource).GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	offer := func(checked time.Time) {
		p.Offer([]publish.Observation{{Entry: health.Entry{KeyID: "1", KEKID: "k", Status: health.Healthy, LastChecked: checked, Interval: time.Second}}})
	}
	noon := time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)
	offer(noon)
	eventually(t, "the second is used", func() bool { return p.Status().Server == second.URL() })
	if err := first.SetMode(controlplane.Pass); err != nil {
		t.Fatal(err)
	}
	time.Sleep(retry)
	offer(noon.Add(time.Second))
	eventually(t, "the first is used", func() bool { s := p.Status(); return s.Server == first.URL() && s.Preferred })
	offer(noon.Add(2 * time.Second)) // after which no event of the retry can come
	seen := 0
	for event := range changes.ResultChan() {
		u, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatal(event.Object)
		}
		seen++
		if e := entriesIn(u, r.node); len(e) == 1 && e[0].LastChecked.Equal(noon.Add(2*time.Second)) {
			break
		}
	}
	if seen != 3 {
		t.Errorf("the object changed %d times, for three reports", seen)
	}
}

func proxy(t *testing.T) *controlplane.Proxy {
	t.Helper()
	p, err := controlplane.NewProxy(cluster.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
