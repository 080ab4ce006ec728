package bench

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestReporter(t *testing.T) {
	f := newFixture(t)
	reporter, floor := f.program("kms-health-reporter"), f.program("bench-floor")
	binary, err := os.Stat(reporter)
	f.must(err)
	judge(f, "binary, stripped", binary.Size(), maxBinary, megabytes)
	f.startCluster()
	f.longRun(reporter, floor)
	f.manyReloads(reporter)
	f.manyFlaps(reporter)
	f.manyFrozen(reporter)
}

const (
	scrapeEvery = 30 * time.Second // as Prometheus would
	warmUp      = 5 * time.Second  // not part of the CPU time: the start, connecting, the handshake
	parts       = 9                // of a long run
)

// runner is a process whose cycles are counted by the calls that its plugins receive.
type runner struct {
	*process
	node   *node
	cpu    time.Duration // at the last reading
	cycles float64       // the same
}

// perCycle returns the CPU time of a cycle since the last reading.
func (r *runner) perCycle() time.Duration {
	calls := int64(0)
	for _, p := range r.node.plugins {
		calls += p.Calls(kmsplugin.CallStatus).Count
	}
	cpu, cycles := r.cpuTime(), float64(calls)/float64(len(r.node.plugins))
	since, n := cpu-r.cpu, cycles-r.cycles
	r.cpu, r.cycles = cpu, cycles
	if n <= 0 {
		r.node.Fatalf("%s: no cycle was counted", r.log)
	}
	return time.Duration(float64(since) / n)
}

// longRun measures a reporter and the floor side by side: their CPU time, of which other
// programs on the machine disturb one part or another, and their memory at the end.
func (f *fixture) longRun(reporter, floor string) {
	f.progress("the reporter and the floor side by side, for %s", f.duration)
	ours, theirs := &runner{node: f.newNode("measured", reporter, 2)}, &runner{node: f.newNode("baseline", reporter, 2)} // names as long
	request, ca := theirs.node.capture(), filepath.Join(f.dir, "floor-ca.crt")
	f.must(os.WriteFile(ca, f.access.CA, 0o600))
	theirs.process = f.start("floor", floor, request, f.cluster.Address(), ca, theirs.node.socket(1), theirs.node.socket(2))
	ours.node.configureAll(f.access)
	ours.process = ours.node.run()
	f.pause(warmUp)
	ours.perCycle()
	theirs.perCycle()
	var ratios []float64
	for range parts {
		for end := time.Now().Add(f.duration / parts); time.Now().Before(end); {
			f.pause(min(scrapeEvery, time.Until(end)))
			m := f.scrape("http://"+ours.node.serving, "")
			if probed := m[healthyProbes]; m[writes] < probed*9/10 {
				f.Fatalf("of %.0f rounds of probes only %.0f were written: this would not measure the work", probed, m[writes])
			}
		}
		cpu, least := ours.perCycle(), theirs.perCycle()
		ratios = append(ratios, float64(cpu)/float64(least))
		f.progress("CPU per cycle: %s, floor %s", milliseconds(cpu), milliseconds(least))
	}
	slices.Sort(ratios)
	judge(f, fmt.Sprintf("CPU per cycle, 2 plugins, times the floor, median of %d", parts), ratios[parts/2], maxCPU, times)
	m, resident, anon := ours.memory(), int64(maxResident), int64(maxAnon)
	if f.duration < fullTime {
		resident, anon = unbounded, unbounded
	}
	judge(f, fmt.Sprintf("resident memory (VmRSS) after %s", f.duration), m.all, resident, megabytes)
	judge(f, "  of it not the binary's (RssAnon)", m.anon, anon, megabytes)
	theirs.end()
	ours.end()
}

// capture returns the path of a file with the write that a reporter sends here, as it
// goes over the wire: what the floor sends, byte for byte but the times.
func (n *node) capture() string {
	n.Helper()
	requests := make(chan []byte, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		wire, err := httputil.DumpRequest(r, true)
		if err != nil {
			return // the reporter sends another
		}
		select {
		case requests <- wire:
		default:
		}
	}))
	defer server.Close()
	access := n.access
	access.Server = server.URL
	access.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
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
