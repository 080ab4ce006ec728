package publish

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/scraped"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit bounds each wait.
const waitLimit = time.Minute

// server is an HTTPS server with given responses, for behaviour that a healthy API server does not show. All else is
// tested with a real API server, in test/integration.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	answer   http.HandlerFunc
	requests chan *seen
}

type seen struct {
	text       string // method, URI, some headers, and the body
	entries    []contract.Entry
	keyIDs     []string
	connection string // the client's address
}

// newServer returns a server that requests client certificates, and accepts any and none.
func newServer(t *testing.T) *server {
	s := &server{requests: make(chan *seen, 1000)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var sent struct {
			Status struct{ Conditions []struct{ Message string } }
		}
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Error(err)
		}
		h := r.Header
		got := &seen{connection: r.RemoteAddr, text: strings.Join([]string{
			r.Method, r.URL.RequestURI(), h.Get("Content-Type"), h.Get("Accept"), h.Get("User-Agent"), string(body)}, "\n")}
		for _, c := range sent.Status.Conditions {
			entries, err := contract.DecodeMessage(c.Message)
			if err != nil {
				t.Error(err)
			}
			got.entries = entries
			for _, e := range entries {
				got.keyIDs = append(got.keyIDs, e.KeyID)
			}
		}
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		s.requests <- got
		if answer == nil {
			answer = accepts
		}
		answer(w, r)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// accepts answers like an API server that has written the condition.
func accepts(w http.ResponseWriter, r *http.Request) {
	manager := r.URL.Query().Get("fieldManager")
	says(metadataWith(nil, owned(manager, ownsCondition("n"))))(w, r)
}

func (s *server) answers(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *server) next(t *testing.T) *seen {
	t.Helper()
	select {
	case r := <-s.requests:
		return r
	case <-time.After(waitLimit):
		t.Fatal("no request")
		return nil
	}
}

func (s *server) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// credentialFiles writes the files that the operator would mount.
func credentialFiles(t *testing.T, s *server) (dir string) {
	dir = t.TempDir()
	write(t, dir+"/ca.crt", string(s.ca()))
	write(t, dir+"/token", "first\n")
	write(t, dir+"/kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: u, user: {tokenFile: %s/token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, s.URL, dir))
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Succeed(t, disk.Replace(path, []byte(text)))
}

// replaceIn replaces a text in a file.
func replaceIn(t *testing.T, path, old, new string) {
	t.Helper()
	content := disk.Read(t, path)
	if !strings.Contains(string(content), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	write(t, path, strings.ReplaceAll(string(content), old, new))
}

type running struct {
	*Publisher
	metrics *metrics.Registry
}

func run(t *testing.T, dir string, timeout time.Duration) *running {
	return runAs(t, dir, through(timeout))
}

// reportTo runs a publisher to a server that answers so, or accepts if answer is nil, and offers the report "1".
func reportTo(t *testing.T, answer http.HandlerFunc, timeout time.Duration) (*server, *running) {
	s := newServer(t)
	s.answers(answer)
	p := run(t, credentialFiles(t, s), timeout)
	p.offer("1")
	return s, p
}

// runAs runs a publisher whose configuration was changed.
func runAs(t *testing.T, dir string, change func(*Config)) *running {
	config := Config{To: contract.ResourceOf("kubeapiservers"), Node: "n", UserAgent: "test/1", Since: func() time.Time { return noon }}
	config.Kubeconfig, config.WriteTimeout.Duration = filepath.Join(dir, "kubeconfig"), waitLimit
	change(&config)
	m := metrics.New(contract.ReporterMetrics)
	p := New(config, m)
	p.credentials.age = 0
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return &running{p, m}
}

func (r *running) offer(keyID string) {
	r.Offer([]contract.Entry{{KeyID: keyID, Status: contract.Healthy, LastChecked: noon}})
}

// waitFor waits until n writes have ended as a kind.
func (r *running) waitFor(t *testing.T, kind Kind, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d writes end as %s", n, kind), func() bool {
		return scraped.Value(r.metrics.Text(), contract.MetricWrites, string(kind)) >= float64(n)
	})
}

// report offers a report, and waits until n writes have ended as a kind.
func (r *running) report(t *testing.T, keyID string, kind Kind, n int) {
	t.Helper()
	r.offer(keyID)
	r.waitFor(t, kind, n)
}

// awaitError waits until the last write has failed, and returns why.
func (r *running) awaitError(t *testing.T) string {
	t.Helper()
	await(t, "a write fails", func() bool { return r.LastError() != "" })
	return r.LastError()
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestRequestIsOneServerSideApplyOfTheReportersOwnCondition(t *testing.T) {
	s := newServer(t)
	p := run(t, credentialFiles(t, s), waitLimit)
	p.Offer(nil) // nothing to write
	p.Offer([]contract.Entry{
		{KeyID: "2", KEKID: "k", Status: contract.Healthy, LastChecked: noon, Interval: 30 * time.Second, Reporter: "u-1"},
		{KeyID: "1", Status: contract.Error, LastChecked: noon, Detail: "gone", Interval: 30 * time.Second},
	})
	const want = `PATCH
/apis/operator.openshift.io/v1/kubeapiservers/cluster/status?fieldManager=kms-health-reporter-n&force=true
application/apply-patch+yaml
application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1
test/1
{"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServer","metadata":{"name":"cluster"},"status":{"conditions":[` +
		`{"lastTransitionTime":"2026-05-08T12:34:56Z","message":` +
		`"[{\"keyID\":\"2\",\"kekID\":\"k\",\"status\":\"healthy\",\"lastChecked\":\"2026-05-08T12:34:56Z\",\"intervalSeconds\":30,\"reporter\":\"u-1\"},` +
		`{\"keyID\":\"1\",\"status\":\"error\",\"lastChecked\":\"2026-05-08T12:34:56Z\",\"detail\":\"gone\",\"intervalSeconds\":30}]","reason":"AsExpected","status":"True","type":"KMSHealthReporter_n"}]}}`
	if diff := cmp.Diff(want, s.next(t).text); diff != "" {
		t.Error(diff)
	}
}

func TestFailedWriteIsDroppedAndTheLatestIsWritten(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, p := reportTo(t, func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}, waitLimit)
	<-entered
	for _, keyID := range []string{"2", "3", "4"} {
		p.offer(keyID) // offered while the first write runs
	}
	s.answers(nil)
	close(leave)
	if first, second := s.next(t), s.next(t); first.keyIDs[0] != "1" || second.keyIDs[0] != "4" {
		t.Errorf("wrote %v, then %v", first.keyIDs, second.keyIDs)
	}
	p.waitFor(t, Success, 1)
	p.waitFor(t, ServerError, 1)
	p.offer("5") // later writes work
	if next := s.next(t); next.keyIDs[0] != "5" {
		t.Errorf("wrote %v again", next.keyIDs)
	}
}

func TestWithdrawnReportLeavesNoError(t *testing.T) {
	_, p := reportTo(t, fails(503), waitLimit)
	p.waitFor(t, ServerError, 1)
	p.Offer(nil)
	await(t, "no error", func() bool { return p.LastError() == "" })
}

func TestNothingIsWrittenToAnAtomicListAfterTheFirstWrite(t *testing.T) {
	var fields atomic.Value
	fields.Store(`{"k:{\"type\":\"KMSHealthReporter_n\"}":{".":{}}}`)
	s, p := reportTo(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"metadata":{"managedFields":[
			{"manager":"another","fieldsV1":{"f:status":{"f:conditions":{}}}},
			{"manager":"kms-health-reporter-n","subresource":"status","fieldsV1":{"f:status":{"f:conditions":%s}}}]}}`, fields.Load())
	}, waitLimit)
	p.waitFor(t, Success, 1)
	s.next(t)
	fields.Store(`{}`)
	p.offer("2")
	s.next(t)
	p.waitFor(t, AtomicList, 2)
	p.report(t, "3", AtomicList, 3)
	if text := p.LastError(); len(s.requests) != 0 || !strings.Contains(text, "x-kubernetes-list-type: map") {
		t.Errorf("%d further writes; %q", len(s.requests), text)
	}
}

// The reporter must not follow a redirect: no other server may get the token or a GET.
func TestPagesAndRedirectsAreNoSuccessAndNotFollowed(t *testing.T) {
	other := newServer(t)
	redirect := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/login", code) }
	}
	for name, answer := range map[string]http.HandlerFunc{
		"302": redirect(http.StatusFound), "307": redirect(http.StatusTemporaryRedirect),
		"a page": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in</html>") },
	} {
		_, p := reportTo(t, answer, waitLimit)
		p.waitFor(t, Unexpected, 1)
		if n := len(other.requests); n != 0 || scraped.Value(p.metrics.Text(), contract.MetricWrites, string(Success)) != 0 {
			t.Errorf("%s: %d requests to where it was redirected, or a success", name, n)
		}
	}
}
