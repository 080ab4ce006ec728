package reporter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
)

// answer is the expected response for a state of the reporter.
type answer struct {
	name, path string
	state      *Reporter
	after      time.Duration // since the plugins were checked
	code       int
	body       string
}

func answers(failing *publish.Publisher) []answer {
	checked := time.Now()
	entry := func(keyID string, status contract.Status, detail string) *plugin {
		p := unprobed(keyID)
		p.observed = true
		p.entry = contract.Entry{Status: status, Detail: detail, LastChecked: checked, Interval: time.Second}
		return p
	}
	config := &v1alpha1.ReporterConfiguration{}
	with := func(plugins ...*plugin) *Reporter { return &Reporter{config: config, plugins: plugins} }
	good := with(entry("2", contract.Healthy, ""), entry("1", contract.Healthy, ""))
	one := with(good.plugins[0])
	unhealthy := with(entry("2", contract.Healthy, ""), entry("1", contract.Error, "cannot connect"))
	fresh := &Reporter{configError: "not read yet"}
	broken := with(good.plugins...)
	broken.configError = "probe.interval: bad"
	unprobed2 := with(unprobed("2"))
	forged := with(entry("1", contract.Error, "no\n[+]kms-provider-1 ok\r\u2028\u202e"))
	own := with(entry("2", contract.Healthy, ""), unprobed("1"))
	own.plugins[0].notProbed, own.plugins[1].notProbed = "too many open files", "cannot allocate memory"
	written := &Reporter{config: config, publisher: failing}
	gone := with(unprobed("2"))
	gone.plugins[0].last = probe.Result{Gone: true}

	return []answer{
		{"healthy", "/healthz", good, 0, 200, "ok"},
		{"verbose", "/healthz?verbose", good, 0, 200, "[+]ping ok\n[+]config ok\n[+]probe ok\nhealthz check passed\n"},
		{"a broken file is no reason to restart", "/healthz", broken, 0, 200, "ok"},
		{"a broken file is reported", "/healthz?verbose", broken, 0, 200, "[+]ping ok\n[-]config failed: the last good configuration is active: probe.interval: bad\n[+]probe ok\nhealthz check passed\n"},
		{"writes", "/healthz?verbose", written, 0, 200, "[+]ping ok\n[+]config ok\n[+]probe ok\n[-]write failed: the node has no name, so nothing is written: set --node-name or KMS_HEALTH_NODE\nhealthz check passed\n"},
		{"a failed write is no reason to restart", "/healthz", written, 0, 200, "ok"},
		{"a failed write does not make it unready", "/readyz", written, 0, 200, "ok"},
		{"plugins that the reporter could not probe", "/healthz?verbose", own, 0, 200, "[+]ping ok\n[+]config ok\n[-]probe failed: plugin 2: too many open files; plugin 1: cannot allocate memory\nhealthz check passed\n"},
		{"a failure of the reporter does not fail liveness", "/healthz", own, 0, 200, "ok"},
		{"a failure of the reporter keeps the last result", "/kms-providers", own, 0, 500, "[+]kms-provider-2 ok\n[-]kms-provider-1 failed: not yet observed: cannot allocate memory\nkms-providers check failed\n"},
		{"after a failure of the reporter the last result becomes stale", "/kms-providers", own, 5 * time.Second, 500, "[-]kms-provider-2 failed: last checked 2000-01-01T00:00:00Z, too long ago: the state is not known\n[-]kms-provider-1 failed: not yet observed: cannot allocate memory\nkms-providers check failed\n"},
		{"a plugin cannot forge a line", "/kms-providers", forged, 0, 500, "[-]kms-provider-1 failed: error: no [+]kms-provider-1 ok\nkms-providers check failed\n"},
		{"ready", "/readyz", good, 0, 200, "ok"},
		{"an unhealthy plugin was probed too", "/readyz", unhealthy, 0, 200, "ok"},
		{"no configuration", "/readyz", fresh, 0, 503, "[-]config failed: no configuration yet: not read yet\n[+]probed ok\nreadyz check failed\n"},
		{"not probed", "/readyz", unprobed2, 0, 503, "[+]config ok\n[-]probed failed: plugin 2 has not answered or failed yet\nreadyz check failed\n"},
		{"providers", "/kms-providers", good, 0, 200, "ok"},
		{"providers, verbose", "/kms-providers?verbose", good, 0, 200, "[+]kms-provider-2 ok\n[+]kms-provider-1 ok\nkms-providers check passed\n"},
		{"one is unhealthy", "/kms-providers", unhealthy, 0, 500, "[+]kms-provider-2 ok\n[-]kms-provider-1 failed: error: cannot connect\nkms-providers check failed\n"},
		{"stale", "/kms-providers", one, 5 * time.Second, 500, "[-]kms-provider-2 failed: last checked 2000-01-01T00:00:00Z, too long ago: the state is not known\nkms-providers check failed\n"},
		{"the clock was set back", "/kms-providers", one, -2 * time.Second, 500, "[-]kms-provider-2 failed: last checked 2000-01-01T00:00:02Z, which is ahead of this node's clock\nkms-providers check failed\n"},
		{"not observed", "/kms-providers", unprobed2, 0, 500, "[-]kms-provider-2 failed: not yet observed\nkms-providers check failed\n"},
		{"a deleted folder was probed too", "/readyz", gone, 0, 200, "ok"},
		{"a deleted folder", "/kms-providers", gone, 0, 500, "[-]kms-provider-2 failed: nothing to observe: the folder of its socket was deleted\nkms-providers check failed\n"},
		{"unknown path", "/x", good, 0, 404, "404 page not found\n"},
	}
}

func unprobed(keyID string) *plugin { return &plugin{wanted: wanted{keyID: keyID}} }

// The client may still read the answer after it has closed its side of the connection.
func TestRequestThatEndsBeforeItsAnswerIsNotOK(t *testing.T) {
	h := newFixture(t)
	ended, end := context.WithCancel(t.Context())
	end()
	recorder := httptest.NewRecorder()
	h.reporter.handler().ServeHTTP(recorder, httptest.NewRequestWithContext(ended, "GET", "/readyz", nil))
	if recorder.Code != 503 {
		t.Errorf("%d: %s", recorder.Code, recorder.Body)
	}
}

func TestAnswersHaveKubeAPIServersForm(t *testing.T) {
	failing := publish.New(publish.Config{}, metrics.New(contract.ReporterMetrics)) // fails without a node name
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { failing.Run(ctx) })
	failing.Offer([]contract.Entry{{}})
	eventually(t, "the write fails", func() bool { return failing.LastError() != "" })
	cancel()
	running.Wait()
	for i := range answers(failing) {
		synctest.Test(t, func(t *testing.T) {
			tt := answers(failing)[i]
			time.Sleep(tt.after)
			if tt.after < 0 {
				tt.state.plugins[0].entry.LastChecked = time.Now().Add(-tt.after)
			}
			r := tt.state
			r.metrics, r.events = metrics.New(nil), make(chan func())
			go func() {
				for event := range r.events {
					event()
				}
			}()
			w := httptest.NewRecorder()
			r.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
			close(r.events)
			if w.Code != tt.code || w.Body.String() != tt.body {
				t.Errorf("%s: %d %q\nwant %d %q", tt.name, w.Code, w.Body, tt.code, tt.body)
			}
		})
	}
}
