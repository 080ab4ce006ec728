package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
)

var noon = time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)

// answer is what a view is answered as.
type answer struct {
	name, path string
	view       View
	now        time.Time
	code       int
	body       string
}

func answers() []answer {
	entry := func(keyID string, status contract.Status, detail string) Plugin {
		return Plugin{Probed: true, Entry: contract.Entry{KeyID: keyID, Status: status, Detail: detail, LastChecked: noon, Interval: time.Second}}
	}
	good := View{Configured: true, Plugins: []Plugin{entry("2", contract.Healthy, ""), entry("1", contract.Healthy, "")}}
	one := View{Configured: true, Plugins: good.Plugins[:1]}
	unhealthy := View{Configured: true, Plugins: []Plugin{entry("2", contract.Healthy, ""), entry("1", contract.Error, "cannot connect")}}
	fresh := View{ConfigError: "not read yet"}
	broken := View{Configured: true, ConfigError: "probe.interval: bad", Plugins: good.Plugins}
	unprobed := View{Configured: true, Plugins: []Plugin{{Entry: contract.Entry{KeyID: "2"}}}}
	forged := View{Configured: true, Plugins: []Plugin{entry("1", contract.Error, "no\n[+]kms-provider-1 ok\r\u2028\u202e")}}
	own := View{Configured: true, Plugins: []Plugin{entry("2", contract.Healthy, ""), {Entry: contract.Entry{KeyID: "1"}}}}
	own.Plugins[0].NotProbed, own.Plugins[1].NotProbed = "too many open files", "cannot allocate memory"
	written := View{Configured: true, WriteError: func() string { return "403 Forbidden" }}
	gone := View{Configured: true, Plugins: []Plugin{{Entry: contract.Entry{KeyID: "2"}, Probed: true, Gone: true}}}

	return []answer{
		{"healthy", "/healthz", good, noon, 200, "ok"},
		{"verbose", "/healthz?verbose", good, noon, 200, "[+]ping ok\n[+]config ok\n[+]probe ok\nhealthz check passed\n"},
		{"a broken file is no reason to restart", "/healthz", broken, noon, 200, "ok"},
		{"a broken file is reported", "/healthz?verbose", broken, noon, 200, "[+]ping ok\n[-]config failed: the last good configuration is active: probe.interval: bad\n[+]probe ok\nhealthz check passed\n"},
		{"writes", "/healthz?verbose", written, noon, 200, "[+]ping ok\n[+]config ok\n[+]probe ok\n[-]write failed: 403 Forbidden\nhealthz check passed\n"},
		{"a failed write is no reason to restart", "/healthz", written, noon, 200, "ok"},
		{"a failed write does not make it unready", "/readyz", written, noon, 200, "ok"},
		{"plugins that the reporter could not probe", "/healthz?verbose", own, noon, 200, "[+]ping ok\n[+]config ok\n[-]probe failed: plugin 2: too many open files; plugin 1: cannot allocate memory\nhealthz check passed\n"},
		{"a failure of the reporter does not fail liveness", "/healthz", own, noon, 200, "ok"},
		{"a failure of the reporter keeps the last result", "/kms-providers", own, noon, 500, "[+]kms-provider-2 ok\n[-]kms-provider-1 failed: not yet observed: cannot allocate memory\nkms-providers check failed\n"},
		{"after a failure of the reporter the last result becomes stale", "/kms-providers", own, noon.Add(5 * time.Second), 500, "[-]kms-provider-2 failed: last checked 2026-05-08T12:00:00Z, too long ago: the state is not known\n[-]kms-provider-1 failed: not yet observed: cannot allocate memory\nkms-providers check failed\n"},
		{"a plugin cannot forge a line", "/kms-providers", forged, noon, 500, "[-]kms-provider-1 failed: error: no [+]kms-provider-1 ok\nkms-providers check failed\n"},
		{"ready", "/readyz", good, noon, 200, "ok"},
		{"an unhealthy plugin was probed too", "/readyz", unhealthy, noon, 200, "ok"},
		{"no configuration", "/readyz", fresh, noon, 503, "[-]config failed: no configuration yet: not read yet\n[+]probed ok\nreadyz check failed\n"},
		{"not probed", "/readyz", unprobed, noon, 503, "[+]config ok\n[-]probed failed: plugin 2 has not answered or failed yet\nreadyz check failed\n"},
		{"providers", "/kms-providers", good, noon, 200, "ok"},
		{"providers, verbose", "/kms-providers?verbose", good, noon, 200, "[+]kms-provider-2 ok\n[+]kms-provider-1 ok\nkms-providers check passed\n"},
		{"one is unhealthy", "/kms-providers", unhealthy, noon, 500, "[+]kms-provider-2 ok\n[-]kms-provider-1 failed: error: cannot connect\nkms-providers check failed\n"},
		{"stale", "/kms-providers", one, noon.Add(5 * time.Second), 500, "[-]kms-provider-2 failed: last checked 2026-05-08T12:00:00Z, too long ago: the state is not known\nkms-providers check failed\n"},
		{"the clock was set back", "/kms-providers", one, noon.Add(-2 * time.Second), 500, "[-]kms-provider-2 failed: last checked 2026-05-08T12:00:00Z, which is ahead of this node's clock\nkms-providers check failed\n"},
		{"not observed", "/kms-providers", unprobed, noon, 500, "[-]kms-provider-2 failed: not yet observed\nkms-providers check failed\n"},
		{"a deleted folder was probed too", "/readyz", gone, noon, 200, "ok"},
		{"a deleted folder", "/kms-providers", gone, noon, 500, "[-]kms-provider-2 failed: nothing to observe: the folder of its socket was deleted\nkms-providers check failed\n"},
		{"unknown path", "/x", good, noon, 404, "404 page not found\n"},
	}
}

func TestAnswersHaveKubeAPIServersForm(t *testing.T) {
	for _, tt := range answers() {
		t.Run(tt.name, func(t *testing.T) {
			h := newHandler(func() View { return tt.view }, metrics.New(nil), func() time.Time { return tt.now })
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
			if w.Code != tt.code || w.Body.String() != tt.body {
				t.Errorf("%d %q\nwant %d %q", w.Code, w.Body, tt.code, tt.body)
			}
		})
	}
}
