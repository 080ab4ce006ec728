package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestReporter(t *testing.T) {
	f := newFixture(t)
	reporter, floor := f.program("kms-health-reporter"), f.program("bench-floor")
	size := f.size(reporter)
	f.add(row{what: "binary, stripped", measured: megabytes(size), floor: megabytes(f.size(floor)), bound: megabytes(int64(maxBinary)), verdict: atMost(size, maxBinary)})
	// What needs a quiet machine comes first, before there is an API server.
	f.firstProbe(reporter)
	f.changedFile(reporter)
	f.startCluster()
	f.longRun(reporter, floor)
	f.apiServerReturns(reporter)
}

// firstProbe measures the time from exec to the first call that a plugin receives, with
// a destination without a listener.
func (f *fixture) firstProbe(reporter string) {
	f.progress("%d starts of the reporter without an API server", f.starts)
	n := f.newNode("start", reporter, 2)
	ca, err := controlplane.NewCA("nobody")
	f.must(err)
	n.configureAll(controlplane.Kubeconfig{
		Server: "https://" + f.freeAddress(), CA: ca.PEM(), Credential: controlplane.Credential{Token: "nobody"},
	}, "")
	var took []time.Duration
	for range f.starts {
		for _, p := range n.plugins {
			p.ResetCounters()
		}
		p, end := n.run()
		first := n.firstCall(n.plugins[0])
		if other := n.firstCall(n.plugins[1]); other.Before(first) {
			first = other
		}
		took = append(took, first.Sub(p.began))
		end()
	}
	f.latency(fmt.Sprintf("exec to first Status call, median of %d", f.starts), took, maxStart)
}

// changedFile measures the time from a change of the file to the first call that a new
// plugin receives.
func (f *fixture) changedFile(reporter string) {
	f.progress("%d changes of the file", f.swaps)
	const plugins = 4
	n := f.newNode("reload", reporter, plugins)
	// With an hour's interval nothing but a change leads to a probe, and with one
	// plugin at a time each is new to the reporter.
	content := func(i int) string {
		return n.render(settings{interval: time.Hour, keyIDs: []int{i%plugins + 1}})
	}
	n.configure(content(0))
	_, end := n.run()
	defer end()
	n.firstCall(n.plugins[0])
	var took []time.Duration
	for i := 1; i <= f.swaps; i++ {
		f.pause(time.Duration(100+i%7*9) * time.Millisecond) // not in step with the watcher's timers
		p := n.plugins[i%plugins]
		p.ResetCounters()
		changed := n.configure(content(i))
		took = append(took, n.firstCall(p).Sub(changed))
	}
	f.latency(fmt.Sprintf("file change to first probe of a new plugin, median of %d", f.swaps), took, maxReload)
}

// latency judges the median: the slowest depends on who else uses the machine.
func (f *fixture) latency(what string, took []time.Duration, bound time.Duration) {
	middle := median(took)
	f.add(row{what: what, measured: milliseconds(middle), bound: milliseconds(bound), verdict: atMost(middle, bound)})
	f.add(row{what: "  the slowest of them", measured: milliseconds(slices.Max(took))})
}

const (
	scrapeEvery = 30 * time.Second // as Prometheus would
	warmUp      = 5 * time.Second  // left out of the CPU time: the start, connecting, the handshake
)

// runner is a process whose cycles are counted by the calls that its plugins receive.
type runner struct {
	*process
	node   *node
	cpu    time.Duration // at the end of the warm-up
	cycles float64       // the same
}

func (r *runner) reading() (time.Duration, float64) {
	calls := int64(0)
	for _, p := range r.node.plugins {
		calls += p.Calls(kmsplugin.CallStatus).Count
	}
	return cpuTime(r.node, r.PID()), float64(calls) / float64(len(r.node.plugins))
}

// sinceWarmUp returns the CPU time per cycle, and the cycles.
func (r *runner) sinceWarmUp() (time.Duration, float64) {
	cpu, cycles := r.reading()
	if cycles -= r.cycles; cycles <= 0 {
		r.node.Fatalf("%s: no cycle was counted", r.log)
	}
	return time.Duration(float64(cpu-r.cpu) / cycles), cycles
}

// longRun measures a reporter and the floor side by side: their CPU time in the
// first half, on a machine as quiet as it gets, and their memory at the end.
// Another reporter reloads its file beside them in the second half and on.
func (f *fixture) longRun(reporter, floor string) {
	f.progress("the reporter and the floor side by side, for %s", f.duration)
	ours, theirs := &runner{node: f.newNode("measured", reporter, 2)}, &runner{node: f.newNode("baseline", reporter, 2)} // names as long
	request, ca := theirs.node.capture(), filepath.Join(f.dir, "floor-ca.crt")
	f.must(os.WriteFile(ca, f.access().CA, 0o600))
	theirs.process, _ = f.start(filepath.Join(f.dir, "floor.log"), floor,
		"--request", request, "--server", f.cluster.Address(), "--ca", ca, theirs.node.socket(1), theirs.node.socket(2))
	ours.node.configureAll(f.access(), "")
	ours.process, _ = ours.node.run()
	f.pause(warmUp)
	for _, r := range []*runner{ours, theirs} {
		r.cpu, r.cycles = r.reading()
	}
	f.observe(ours, theirs, f.duration/2)
	cpu, cycles := ours.sinceWarmUp()
	least, _ := theirs.sinceWarmUp()
	ratio := float64(cpu) / float64(least)
	f.add(row{
		what: fmt.Sprintf("CPU per cycle, 2 plugins, over %.0f cycles", cycles), measured: perCycle(cpu), floor: perCycle(least),
		value: fmt.Sprintf("%.2fx", ratio), bound: fmt.Sprintf("%.2fx", maxCPU), verdict: atMost(ratio, maxCPU),
	})
	// Reloads go on beside it, and may take longer. Where they fail the channel is closed.
	gained := make(chan *gain, 1)
	go func() { defer close(gained); gained <- f.manyReloads(reporter) }()
	defer func() {
		for range gained { // it must not outlive the test
		}
	}()
	f.observe(ours, theirs, f.duration)
	mine, least2 := memoryOf(f, ours.PID()), memoryOf(f, theirs.PID())
	judged := func(value, bound int64) verdict {
		if f.duration < fullTime {
			return notJudged
		}
		return atMost(value, bound)
	}
	f.add(row{
		what: fmt.Sprintf("resident memory (VmRSS) after %s", f.duration), measured: megabytes(mine.all), floor: megabytes(least2.all),
		bound: megabytes(int64(maxResident)), verdict: judged(mine.all, maxResident),
	})
	f.add(row{
		what: "  of it not the binary's (RssAnon)", measured: megabytes(mine.anon), floor: megabytes(least2.anon),
		bound: megabytes(int64(maxAnon)), verdict: judged(mine.anon, maxAnon),
	})
	if g := <-gained; g != nil {
		f.gained(g)
	}
}

// observe waits until the reporter has lived for a time, and scrapes it meanwhile.
func (f *fixture) observe(ours, theirs *runner, age time.Duration) {
	f.Helper()
	metrics := newScraper(f, ours.node.serving, nil, "")
	end := ours.began.Add(age)
	for time.Until(end) > 0 {
		f.pause(min(scrapeEvery, time.Until(end)))
		m := metrics.scrape(f)
		if probed := m[healthyProbes]; m[writes] < probed*9/10 {
			f.Fatalf("of %.0f rounds of probes only %.0f were written: this would not measure the work", probed, m[writes])
		}
		cpu, _ := ours.sinceWarmUp()
		least, _ := theirs.sinceWarmUp()
		f.progress("CPU per cycle so far: %s, floor %s", perCycle(cpu), perCycle(least))
	}
}

// capture returns the path of a file with the write that a reporter sends here, as it
// goes over the wire: what the floor sends, byte for byte but the times.
func (n *node) capture() string {
	n.Helper()
	// By TLS, since a token is sent no other way.
	ca, err := controlplane.NewCA("capture")
	n.must(err)
	files, err := ca.Serving("127.0.0.1")
	n.must(err)
	pair, err := tls.X509KeyPair(files.Cert, files.Key)
	n.must(err)
	requests := make(chan []byte, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		wire, err := httputil.DumpRequest(r, true)
		if err != nil {
			return // the reporter sends another
		}
		select {
		case requests <- wire:
		default:
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	access := n.access()
	access.Server, access.CA = server.URL, ca.PEM()
	n.configureAll(access, "")
	_, end := n.run()
	defer end()
	select {
	case wire := <-requests:
		path := filepath.Join(n.sockets, "request")
		n.must(os.WriteFile(path, wire, 0o600))
		return path
	case <-time.After(waitLimit):
		n.Fatal("no write of the reporter arrived")
		return ""
	}
}

const (
	// outage is how long the API server is away: long enough for the reporter's
	// retries to be as rare as they get, and its last entry to be stale.
	outage = 12 * time.Second
	// startPoll and freshPoll are the resolution of the measurement.
	startPoll = 10 * time.Millisecond
	freshPoll = 20 * time.Millisecond
)

// apiServerReturns measures how long the condition is stale after an outage:
// from the first time that /livez answers 200 to an entry that was checked after
// that, as a reader of the API sees it. Entries have whole seconds, so up to one
// of those is the measurement's own.
func (f *fixture) apiServerReturns(reporter string) {
	f.progress("%d outages of the API server", f.outages)
	n := f.newNode("outage", reporter, 2)
	n.configureAll(f.access(), "")
	_, end := n.run()
	defer end()
	config := f.cluster.RESTConfig()
	trust, err := rest.TLSConfigFor(config)
	f.must(err)
	// A starting server accepts connections before it answers.
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: trust}}
	defer client.CloseIdleConnections()
	isLive := func() bool {
		answer, err := get(running, client, f.cluster.URL()+"/livez", config.BearerToken)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, answer) // so that the connection is kept
		_ = answer.Close()
		return true
	}
	checkedAfter := func(after time.Time) func() bool {
		return func() bool {
			entries := n.entries(client, config.BearerToken)
			return len(entries) > 0 && !slices.ContainsFunc(entries, func(e health.Entry) bool { return !e.LastChecked.After(after) })
		}
	}
	f.until("a fresh condition", freshPoll, checkedAfter(time.Now()))
	var took []time.Duration
	for range f.outages {
		f.must(f.cluster.StopAPIServer(running))
		f.pause(outage)
		started := make(chan error, 1)
		go func() { started <- f.cluster.StartAPIServer(running) }()
		back := f.until("/livez of the API server", startPoll, isLive)
		fresh := f.until("a fresh condition", freshPoll, checkedAfter(back)).Sub(back)
		f.must(<-started)
		f.progress("fresh again in %s", milliseconds(fresh))
		took = append(took, fresh)
	}
	slowest := slices.Max(took)
	f.add(row{
		what: fmt.Sprintf("API server's return to fresh condition, slowest of %d", f.outages), measured: milliseconds(slowest),
		bound: milliseconds(maxReturn), verdict: atMost(slowest, maxReturn),
	})
	f.add(row{what: "  the median of them", measured: milliseconds(median(took))})
}

// until polls, and returns when the check first succeeded.
func (f *fixture) until(what string, every time.Duration, check func() bool) time.Time {
	f.Helper()
	ctx, cancel := context.WithTimeout(running, 2*time.Minute) // a start on a busy machine
	defer cancel()
	for !check() {
		if ctx.Err() != nil {
			f.Fatalf("wait for %s: %v", what, context.Cause(ctx))
		}
		time.Sleep(every)
	}
	return time.Now()
}

// entries returns those of the node's condition; none while it cannot be read.
func (n *node) entries(client *http.Client, token string) []health.Entry {
	answer, err := get(running, client, n.cluster.URL()+"/apis/"+controlplane.OperatorGroup+"/v1/"+apiservers.Kube.Resource+"/"+controlplane.ClusterObject, token)
	if err != nil {
		return nil
	}
	defer answer.Close()
	var object struct {
		Status struct {
			Conditions []struct{ Type, Message string }
		}
	}
	if json.NewDecoder(answer).Decode(&object) != nil {
		return nil
	}
	for _, c := range object.Status.Conditions {
		if c.Type == health.ConditionType(n.name) {
			entries, _ := health.DecodeMessage(c.Message) // none on an error
			return entries
		}
	}
	return nil
}
