package bench

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestReporter(t *testing.T) {
	f := newFixture(t)
	reporter, floor := f.program("kms-health-reporter"), f.program("bench-floor")
	size := f.size(reporter)
	f.add(row{what: "binary, stripped", measured: megabytes(size), floor: megabytes(f.size(floor)), bound: megabytes(int64(maxBinary)), verdict: atMost(size, maxBinary)})
	f.startCluster()
	f.longRun(reporter, floor)
	f.manyReloads(reporter)
	f.manyFlaps(reporter)
	f.manyFrozen(reporter)
}

const (
	scrapeEvery = 30 * time.Second // as Prometheus would
	warmUp      = 5 * time.Second  // not part of the CPU time: the start, connecting, the handshake
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
	return r.cpuTime(), float64(calls) / float64(len(r.node.plugins))
}

// sinceWarmUp returns the CPU time per cycle, and the cycles.
func (r *runner) sinceWarmUp() (time.Duration, float64) {
	cpu, cycles := r.reading()
	if cycles -= r.cycles; cycles <= 0 {
		r.node.Fatalf("%s: no cycle was counted", r.log)
	}
	return time.Duration(float64(cpu-r.cpu) / cycles), cycles
}

// longRun measures a reporter and the floor side by side: their CPU time, on a machine as
// quiet as it gets, and their memory at the end.
func (f *fixture) longRun(reporter, floor string) {
	f.progress("the reporter and the floor side by side, for %s", f.duration)
	ours, theirs := &runner{node: f.newNode("measured", reporter, 2)}, &runner{node: f.newNode("baseline", reporter, 2)} // names as long
	request, ca := theirs.node.capture(), filepath.Join(f.dir, "floor-ca.crt")
	f.must(os.WriteFile(ca, f.access.CA, 0o600))
	theirs.process = f.start("floor", floor, request, f.cluster.Address(), ca, theirs.node.socket(1), theirs.node.socket(2))
	ours.node.configureAll(f.access)
	ours.process = ours.node.run()
	f.pause(warmUp)
	for _, r := range []*runner{ours, theirs} {
		r.cpu, r.cycles = r.reading()
	}
	f.observe(ours, theirs)
	cpu, cycles := ours.sinceWarmUp()
	least, _ := theirs.sinceWarmUp()
	ratio := float64(cpu) / float64(least)
	f.add(row{
		what: fmt.Sprintf("CPU per cycle, 2 plugins, over %.0f cycles", cycles), measured: perCycle(cpu), floor: perCycle(least),
		value: fmt.Sprintf("%.2fx", ratio), bound: fmt.Sprintf("%.2fx", maxCPU), verdict: atMost(ratio, maxCPU),
	})
	mine, least2 := ours.memory(), theirs.memory()
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
	theirs.end()
	ours.end()
}

// observe waits until the reporter has lived for the time of a long run, and scrapes it meanwhile.
func (f *fixture) observe(ours, theirs *runner) {
	f.Helper()
	end := ours.began.Add(f.duration)
	for time.Until(end) > 0 {
		f.pause(min(scrapeEvery, time.Until(end)))
		m := f.scrape("http://"+ours.node.serving, "")
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
	access := n.access
	access.Server, access.CA = server.URL, ca.PEM()
	n.configureAll(access)
	defer n.run().end()
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

// freshPoll is how often a wait looks.
const freshPoll = 20 * time.Millisecond
