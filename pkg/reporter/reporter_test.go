package reporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/metrics"
	"github.com/kms-health/kms-health/pkg/reporter/probe"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/scraped"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit bounds each wait.
const waitLimit = time.Minute

// fixture is a reporter with a folder of sockets, a configuration file, and its printed output.
type fixture struct {
	t        *testing.T
	dir      string
	file     string
	reporter *Reporter
	more     string // lines of the file
	stop     func()
	reports  chan []contract.Entry // the printed lines
}

func (h *fixture) Write(line []byte) (int, error) {
	entries, err := contract.DecodeMessage(strings.TrimSuffix(string(line), "\n"))
	if err != nil {
		h.t.Errorf("%q: %v", line, err)
	}
	h.reports <- entries
	return len(line), nil
}

// newFixture does not start the reporter yet.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := program.SocketDir(t)
	h := &fixture{t: t, dir: dir, file: filepath.Join(dir, "config.yaml"), reports: make(chan []contract.Entry, 10_000)}
	h.reporter = New(Options{ConfigFile: h.file, Output: h, Metrics: metrics.New(contract.ReporterMetrics)})
	return h
}

func (h *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); h.reporter.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(waitLimit / 2): // Run waits 1.5 s for what hangs
			h.t.Error("still running long after its context ended")
			<-done
		}
	})
	h.t.Cleanup(h.stop)
}

func (h *fixture) plugin(keyID string) *kmsplugin.Plugin {
	h.t.Helper()
	p := kmsplugin.StartForTest(h.t, kmsplugin.Options{
		Endpoint: h.endpoint(keyID), StateDir: filepath.Join(h.dir, "state-"+keyID),
	})
	return p
}

func (h *fixture) endpoint(keyID string) string {
	return "unix://" + filepath.Join(h.dir, "kms-"+keyID+".sock")
}

// configProblem returns what /healthz reports about the file.
func (h *fixture) configProblem() string {
	return h.reporter.ask(h.t.Context(), h.reporter.healthChecks)[1].Why
}

// write writes a configuration file with plugins given as keyID:role.
func (h *fixture) write(interval string, plugins ...string) {
	h.t.Helper()
	text := fmt.Sprintf("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\n%sprobe: {interval: %s}\nplugins:", h.more, interval)
	if len(plugins) == 0 {
		text += " []"
	}
	for _, p := range plugins {
		keyID, role, _ := strings.Cut(p, ":")
		text += fmt.Sprintf("\n- {endpoint: '%s', role: %s}", h.endpoint(keyID), role)
	}
	h.writeRaw(text + "\n")
}

func (h *fixture) writeRaw(text string) {
	h.t.Helper()
	must.Succeed(h.t, disk.Replace(h.file, []byte(text)))
}

// await waits for a report that ok accepts, and skips earlier ones.
func (h *fixture) await(what string, ok func([]contract.Entry) bool) {
	h.t.Helper()
	timeout := time.After(waitLimit)
	for last := []contract.Entry(nil); ; {
		select {
		case last = <-h.reports:
			if ok(last) {
				return
			}
		case <-timeout:
			h.t.Fatalf("not in time: %s; the last report: %+v", what, last)
		}
	}
}

// hasStatuses matches exactly these plugins, as keyID=status, in this order.
func hasStatuses(want ...string) func([]contract.Entry) bool {
	return func(entries []contract.Entry) bool {
		var got []string
		for _, e := range entries {
			got = append(got, e.KeyID+"="+string(e.Status))
		}
		return strings.Join(got, " ") == strings.Join(want, " ")
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait.Eventually(t, waitLimit, what, func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	})
}

// A missing socket is an error at the next probe. Its plugin is probed as soon as the socket exists, not an interval
// later.
func TestFileAndSocketMayAppearLaterAndDisappear(t *testing.T) {
	h := newFixture(t)
	h.run()
	eventually(t, "the missing file is reported", func() bool {
		return strings.Contains(h.configProblem(), "no such file or directory")
	})
	missing := finds(contract.Error, contract.SocketMissing, "no such file or directory")
	h.write("1h", "1:Write")
	h.await("an error for the missing socket", missing)
	one := h.plugin("1")
	h.await("the plugin is healthy", hasStatuses("1=healthy"))
	h.write("1s", "1:Write")
	must.Succeed(t, one.Close())
	h.await("an error for the socket that was removed", missing)
	h.write("1h", "1:Write")
	again := h.plugin("1")
	h.await("the plugin is healthy again", hasStatuses("1=healthy"))
	if n := again.Calls(kmsplugin.CallEncrypt).Count; n != 1 {
		t.Errorf("%d round trips before it was healthy again", n)
	}
}

func TestNewPluginIsProbedAtOnceAndOthersKeepTheirConnection(t *testing.T) {
	h := newFixture(t)
	one, two := h.plugin("1"), h.plugin("2")
	h.write("1h", "1:Read")
	h.run()
	must.Succeed(t, one.WaitForCalls(t.Context(), kmsplugin.CallStatus, 1))
	// With an interval of an hour, only the reload can cause this probe.
	h.write("1h", "2:Write", "1:Read")
	h.await("both, the write key first", hasStatuses("2=healthy", "1=healthy"))
	if got := one.State(); got.Connections.Accepted != 1 || got.Calls[kmsplugin.CallStatus].Count != 1 {
		t.Errorf("the plugin that did not change: %+v", got)
	}
	h.write("1h", "2:Write")
	h.await("the dropped one leaves the report at once", hasStatuses("2=healthy"))
	eventually(t, "its connection is closed", func() bool { return one.State().Connections.Open == 0 })
	if got := two.State(); got.Connections.Accepted != 1 {
		t.Errorf("the plugin that stayed: %+v", got)
	}
	if n := strings.Count(string(h.reporter.metrics.Text()), contract.MetricLastProbe.Name+"{"); n != 1 {
		t.Errorf("%d plugins in the metrics", n)
	}
}

// With a shorter interval, a fresh entry would become stale at once.
func TestNewSettingsCauseAProbeAtOnce(t *testing.T) {
	h := newFixture(t)
	one := h.plugin("1")
	h.write("1h", "1:Write")
	h.run()
	for i, interval := range []time.Duration{time.Hour, 30 * time.Minute, 2 * time.Second} {
		h.write(interval.String(), "1:Write")
		h.await("a fresh entry under "+interval.String(), func(e []contract.Entry) bool {
			return len(e) == 1 && e[0].Interval == interval && !e[0].Stale(time.Now()) &&
				one.Calls(kmsplugin.CallStatus).Count > int64(i)
		})
	}
}

func TestInvalidOrDeletedFileKeepsTheLastValidOneActive(t *testing.T) {
	h := newFixture(t)
	one := h.plugin("1")
	h.write("1s", "1:Write")
	h.run()
	h.await("healthy", hasStatuses("1=healthy"))
	applied := scraped.Value(h.reporter.metrics.Text(), contract.MetricConfigApplied)
	if age := time.Since(time.Unix(int64(applied), 0)); age > time.Hour {
		t.Errorf("the metric shows that the file was applied %s ago", age)
	}
	for what, breakIt := range map[string]func(){
		"an unknown field": func() { h.writeRaw("foo: bar\n") },
		"gone": func() {
			must.Succeed(t, os.Remove(h.file))
		},
	} {
		breakIt()
		eventually(t, what+" is reported", func() bool { return h.configProblem() != "" })
		if why := h.configProblem(); !strings.HasPrefix(why, "the last good configuration is active: ") {
			t.Errorf("%s: no longer configured", what)
		}
		if scraped.Value(h.reporter.metrics.Text(), contract.MetricReloadGood) != 0 {
			t.Errorf("%s: the metric reports it as active", what)
		}
		if scraped.Value(h.reporter.metrics.Text(), contract.MetricConfigApplied) < applied {
			t.Errorf("%s: the metric has an earlier time", what)
		}
		for len(h.reports) > 0 { // reports from before the change
			<-h.reports
		}
		h.await(what+": still probed", hasStatuses("1=healthy"))
		h.write("1s", "1:Write")
		eventually(t, what+" is fixed", func() bool { return h.configProblem() == "" })
	}
	if got := one.State().Connections.Accepted; got != 1 {
		t.Errorf("%d connections", got)
	}
}

func TestFileThatThePodWasNotCreatedForIsReportedAndApplied(t *testing.T) {
	h := newFixture(t)
	h.plugin("1")
	h.plugin("2")
	h.reporter.options.ConfigHash = v1alpha1.PluginSetHash([]v1alpha1.Plugin{{KeyID: "1", Endpoint: h.endpoint("1")}})
	expected := func() bool {
		return h.configProblem() == "" && scraped.Value(h.reporter.metrics.Text(), contract.MetricConfigExpected) == 1
	}
	h.write("1s", "1:Write")
	h.run()
	h.await("the set that it was made for", hasStatuses("1=healthy"))
	if !expected() {
		t.Error("a file with the right plugin set is reported as another")
	}
	h.write("1s", "1:Write", "2:Read")
	h.await("another set is active", hasStatuses("1=healthy", "2=healthy"))
	if expected() || scraped.Value(h.reporter.metrics.Text(), contract.MetricConfigExpected) != 0 {
		t.Error("a file with another plugin set is not reported")
	}
	h.write("2s", "1:Read")
	eventually(t, "interval and role are no part of a set", expected)
}

func TestPluginThatHangsDelaysNoOther(t *testing.T) {
	h := newFixture(t)
	one, two := h.plugin("1"), h.plugin("2")
	must.Succeed(t, one.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultHang}))
	h.write("60s", "1:Read, timeout: 60s", "2:Write") // the timeout is longer than this test may take
	h.run()
	h.await("the other one's answer", hasStatuses("2=healthy"))
	if got := two.Calls(kmsplugin.CallStatus).Count; got != 1 {
		t.Errorf("%d calls", got)
	}
	h.write("60s") // no plugins
	h.await("nothing is reported", hasStatuses())
	eventually(t, "the connections are closed", func() bool { return one.State().Connections.Open+two.State().Connections.Open == 0 })
	h.write("60s", "1:Read", "2:Write") // a plugin that is added again counts as new
	if err := one.WaitForCalls(t.Context(), kmsplugin.CallStatus, 2); err != nil {
		t.Error(err)
	}
	h.stop() // ends although a probe is under way
}

func TestFailingOutputDoesNotEndTheReporter(t *testing.T) {
	h := newFixture(t)
	one := h.plugin("1")
	h.reporter = New(Options{ConfigFile: h.file, Output: (*os.File)(nil), Metrics: metrics.New(contract.ReporterMetrics)})
	h.write("1s", "1:Write")
	h.run()
	if err := one.WaitForCalls(t.Context(), kmsplugin.CallStatus, 3); err != nil {
		t.Error(err)
	}
	if scraped.Value(h.reporter.metrics.Text(), contract.MetricOutputErrors) == 0 {
		t.Error("no failure was counted")
	}
}

func TestReporterWithoutResourcesKeepsTheLastResult(t *testing.T) {
	r := newFixture(t).reporter
	r.config = decode(t, writeOne)
	r.config.Probe.Checks.RoundTrip.Interval = v1alpha1.Duration{} // Status alone is enough
	one := &plugin{wanted: wanted{keyID: "1"}}
	r.plugins = []*plugin{one}
	last := probe.Result{Status: contract.Healthy, KEKID: "k", At: time.Now().Add(-time.Minute).Round(0)}
	lacking := probe.Result{NotProbed: "too many open files", At: time.Now()}
	for i, step := range []struct {
		result probe.Result
		probed bool
	}{{lacking, false}, {last, true}, {lacking, true}, {last, true}} {
		r.observe(one, step.result)
		list := entriesOf(r.plugins)
		if one.judged() != step.probed || one.notProbed != step.result.NotProbed || len(list) == 1 != step.probed {
			t.Errorf("%d: %t, %q, %+v", i, one.judged(), one.notProbed, list)
		}
		if step.probed && (list[0].Status != contract.Healthy || !list[0].LastChecked.Equal(last.At)) {
			t.Errorf("%d: %+v", i, list)
		}
	}
	if n := scraped.Value(r.metrics.Text(), contract.MetricProbeFailures, "1"); n != 2 {
		t.Errorf("counted %v times", n)
	}
}

// A plugin that changes its key_id or text with each probe must not fill the log.
func TestChangesOfTextAndKeyAloneAreLoggedOnceAMinute(t *testing.T) {
	p := &plugin{}
	for i, tt := range []struct {
		status        contract.Status
		kekID, detail string
		logged        bool
	}{
		{contract.Healthy, "a", "", true},
		{contract.Healthy, "b", "", true}, // a rotation
		{contract.Healthy, "c", "", false},
		{contract.Unhealthy, "c", "x", true},
		{contract.Unhealthy, "d", "y", true},
		{contract.Unhealthy, "e", "z", false},
		{contract.Healthy, "f", "", true},
	} {
		before := p.logged.entry
		p.entry = contract.Entry{Status: tt.status, KEKID: tt.kekID, Detail: tt.detail}
		if p.logged.change(p); !reflect.DeepEqual(p.logged.entry, before) != tt.logged {
			t.Errorf("%d: %+v: %t", i, tt, !tt.logged)
		}
	}
}
