//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// downFor is how long the API server is kept down, and the network cut.
func downFor() time.Duration {
	if testing.Short() {
		return 30 * time.Second
	}
	return 2 * time.Minute
}

// The API server is down, and the reporter's container is killed too.
func testAPIServerDown(t *testing.T) {
	h := newScenario(t, true)
	h.awaitHealthy(apiservers.All...)
	plugin := h.pluginOf(apiservers.Kube)
	before := h.allPIDs()
	h.must(h.node().HoldAPIServer())
	released := false
	t.Cleanup(func() {
		if !released {
			_ = h.node().ReleaseAPIServer()
		}
	})
	h.must(h.node().SignalContainer(h.ctx, "kube-apiserver-", "kube-apiserver", syscall.SIGKILL))
	down := time.Now()
	// A container of it runs again, and waits.
	h.await(time.Minute, "the kubelet starts kube-apiserver's container again", func() error {
		found, err := h.node().Processes(h.ctx, "kube-apiserver-", "kube-apiserver")
		if err == nil && len(found) != 1 {
			err = errors.New("it does not run")
		}
		return err
	})
	if _, err := h.node().Get(h.ctx, "/livez"); err == nil {
		t.Fatal("kube-apiserver answers while it is held")
	}

	h.must(h.node().SignalContainer(h.ctx, reporterPods[apiservers.Kube], reporterContainer, syscall.SIGKILL))
	killed := time.Now()
	h.await(5*time.Second, "the reporter has ended", func() error {
		found, err := h.node().Processes(h.ctx, reporterPods[apiservers.Kube], reporterContainer)
		if err == nil && len(found) > 0 && found[0].Started.Before(killed) {
			err = errors.New("it runs")
		}
		return err
	})
	// No other client calls this plugin: its API server is down.
	h.do(plugin, "reset-counters")
	var first time.Time
	h.await(2*time.Minute, "the reporter probes again", func() error {
		state, err := plugin.State()
		if err != nil {
			return err
		}
		if first = state.Calls[kmsplugin.CallStatus].First; first.IsZero() {
			return errors.New("no call of Status")
		}
		return nil
	})
	reporter := h.process(reporterPods[apiservers.Kube], reporterContainer)
	// The process begins as the container runtime's, which then becomes the reporter.
	began, err := h.lastLogged(reporterLogs(apiservers.Kube), `"Starting"`)
	h.must(err)
	if began.at.Before(killed) {
		t.Fatalf("the reporter's log has no start after it was killed: %s", began.text)
	}
	probed := first.Sub(began.at)
	times.took("API server down", "reporter killed to its next probe", first.Sub(killed), began.at.Sub(killed), "100ms")
	atMost(h, "the reporter's start to its first probe", probed, atOnce)
	// Its local view shows it, too.
	h.await(10*time.Second, "the reporter's own view is healthy", func() error {
		view, err := h.served("/kms-providers?verbose")
		if err == nil && !strings.Contains(view, "[+]kms-provider-"+h.writeKey()+" ok") {
			err = errors.New(view)
		}
		return err
	})

	for time.Since(down) < downFor() {
		calls, err := plugin.State()
		h.must(err)
		if idle := time.Since(calls.Calls[kmsplugin.CallStatus].Latest); idle > 3*interval {
			t.Errorf("the reporter has not probed for %s", idle)
			break
		}
		time.Sleep(interval)
	}
	if p := h.process(reporterPods[apiservers.Kube], reporterContainer); p.PID != reporter.PID {
		t.Errorf("the reporter was restarted while the API server was down")
	}
	if n := len(h.seen.States(apiservers.Kube, down.Add(5*time.Second))); n > 0 {
		t.Errorf("the operator resource was written %d times while the API server was down", n)
	}

	h.must(h.node().ReleaseAPIServer())
	released = true
	answers := h.awaitAnswers()
	back, err := h.seen.Await(h.ctx, apiservers.Kube, down.Add(5*time.Second), 30*time.Second, "a fresh report", func(s fixture.State) error {
		return s.Fresh(h.node().Name, answers.Add(-time.Second))
	})
	h.must(err)
	late := max(0, back.At.Sub(answers))
	times.took("API server down", "the API server's answers to a fresh report", late, noTime, "3s")
	if late > 3*time.Second {
		t.Errorf("the report came %s after the API server answered, must be within 3s", late)
	}
	h.awaitHealthy(apiservers.All...)
	after := h.allPIDs()
	for _, name := range []string{
		reporterPods[apiservers.OpenShift] + "/" + reporterContainer, reporterPods[apiservers.OAuth] + "/" + reporterContainer,
		operatorPods + "/" + operatorContainer,
	} {
		if len(after[name]) != 1 || after[name][0] != before[name][0] {
			t.Errorf("%s was restarted: processes %v, before: %v", name, after[name], before[name])
		}
	}
}

// served is what a reporter serves at a path on the node's loopback.
func (h *scenario) served(path string) (string, error) {
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: h.node().Dial}}
	response, err := client.Get("http://127.0.0.1:9180" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return string(body), err
}

// metric is one that has no labels, of those that a reporter serves.
func (h *scenario) metric(name string) (float64, error) {
	text, err := h.served("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// awaitAnswers waits until kube-apiserver serves custom resources, as a report needs.
func (h *scenario) awaitAnswers() time.Time {
	h.t.Helper()
	var at time.Time
	h.await(2*time.Minute, "kube-apiserver answers", func() error {
		_, err := h.OperatorResource(h.ctx, apiservers.Kube)
		at = time.Now()
		return err
	})
	return at
}

// The node's network is cut; its loopback stays.
func testReporterCutOff(t *testing.T) {
	h := newScenario(t, true)
	h.awaitHealthy(apiservers.All...)
	before := h.allPIDs()
	start := time.Now()
	h.must(h.node().CutNetwork(h.ctx))
	t.Cleanup(func() { _ = h.node().RestoreNetwork(context.WithoutCancel(t.Context())) })
	cut := downFor() / 2
	time.Sleep(cut)
	h.must(h.node().RestoreNetwork(h.ctx))
	h.steady("network cut", "cut", start, fixture.State.Healthy, apiservers.All...)
	h.untouched(before)
}
