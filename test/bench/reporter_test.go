package bench

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

func TestReporter(t *testing.T) {
	f := newFixture(t)
	builds, floor := f.reporters(), f.program("bench-floor")
	var sizes []int64
	for _, build := range builds {
		binary, err := os.Stat(build)
		f.must(err)
		sizes = append(sizes, binary.Size())
	}
	judge(f, "binary, stripped", sizes[0], maxBinary, megabytes)
	f.startCluster(false)
	f.longRun(floor)
	f.manyReloads(builds[0])
	f.manyFlaps(builds[0])
	f.manyFrozen(builds[0])
}

const (
	scrapeEvery = 30 * time.Second // like Prometheus
	warmUp      = 5 * time.Second  // the start and the handshakes, which do not count as CPU time
	parts       = 9                // parts of a long run
	copies      = 5                // copies of each build, because resident memory is partly chance
)

// runner is a process whose cycles are counted by the calls that its plugins receive.
type runner struct {
	*process
	node   *node
	cpu    time.Duration // at the last reading
	cycles float64       // at the last reading
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

// build has the runners of one build of the reporter.
type build struct {
	runners []*runner
	ratios  []float64 // its CPU time divided by the floor's, by part
}

// longRun measures the CPU time of reporters and the floor side by side, in parts, because other programs may disturb
// some parts. At the end it measures memory.
func (f *fixture) longRun(floor string) {
	f.progress("reporters and the floor side by side, for %s", f.duration)
	theirs := &runner{node: f.newNode("baseline-0", f.builds[0], 2)} // the name is as long as the reporters' names
	request, ca := theirs.node.capture(), filepath.Join(f.dir, "floor-ca.crt")
	f.must(os.WriteFile(ca, f.access.CA, 0o600))
	theirs.process = f.start("floor", floor, request, f.cluster.Address(), ca, theirs.node.socket(1), theirs.node.socket(2))
	builds := make([]build, len(f.builds))
	for n := range copies {
		for i, program := range f.builds {
			r := &runner{node: f.newNode(fmt.Sprintf("measure%d-%d", i, n), program, 2)}
			r.node.configureAll(f.access)
			r.process = r.node.run()
			f.Cleanup(r.end)
			builds[i].runners = append(builds[i].runners, r)
		}
	}
	f.pause(warmUp)
	theirs.perCycle()
	for _, b := range builds {
		b.perCycle()
	}
	var worse []float64 // this build's ratio divided by the other build's
	for range parts {
		f.scrapeFor(f.duration/parts, builds)
		least := theirs.perCycle()
		for i := range builds {
			cpu := builds[i].perCycle()
			builds[i].ratios = append(builds[i].ratios, float64(cpu)/float64(least))
			f.progress("CPU per cycle: %s, floor %s", milliseconds(cpu), milliseconds(least))
		}
		last := len(builds[0].ratios) - 1
		worse = append(worse, builds[0].ratios[last]/builds[len(builds)-1].ratios[last])
	}
	theirs.end()
	judge(f, fmt.Sprintf("CPU per cycle, 2 plugins, times the floor, median of %d", parts), median(builds[0].ratios), maxCPU, times)
	if len(builds) > 1 {
		judge(f, "  CPU per cycle, times the base's", median(worse), maxWorse, times)
	}
	f.judgeMemory(builds)
}

// scrapeFor scrapes reporters for a time, and fails if they did not write.
func (f *fixture) scrapeFor(d time.Duration, builds []build) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		f.pause(min(scrapeEvery, time.Until(end)))
		for _, b := range builds {
			for _, r := range b.runners {
				m := f.scrape("http://"+r.node.serving, "")
				if probed := m[healthyProbes]; m[writes] < probed*9/10 {
					f.Fatalf("of %.0f rounds of probes only %.0f were written: this would not measure the work", probed, m[writes])
				}
			}
		}
	}
}

// perCycle returns the mean of the runners.
func (b build) perCycle() (sum time.Duration) {
	for _, r := range b.runners {
		sum += r.perCycle()
	}
	return sum / time.Duration(len(b.runners))
}

func (f *fixture) judgeMemory(builds []build) {
	var all, anon []int64 // by build
	for _, b := range builds {
		var ofAll, ofAnon []int64
		for _, r := range b.runners {
			m := r.memory()
			ofAll, ofAnon = append(ofAll, m.all), append(ofAnon, m.anon)
		}
		f.Logf("VmRSS: %v, RssAnon: %v", ofAll, ofAnon)
		all, anon = append(all, median(ofAll)), append(anon, median(ofAnon))
	}
	maxAll, maxOwn := int64(maxResident), int64(maxAnon)
	if f.duration < fullTime {
		maxAll, maxOwn = unbounded, unbounded
	}
	judge(f, fmt.Sprintf("resident memory (VmRSS) after %s, median of %d", f.duration, copies), all[0], maxAll, megabytes)
	compare(f, "resident memory", all)
	judge(f, "  of it not the binary's (RssAnon)", anon[0], maxOwn, megabytes)
	compare(f, "RssAnon", anon)
}

// capture returns the path of a file with a reporter's write request as sent over the wire. The floor sends the same
// bytes, except for the times.
func (n *node) capture() string {
	requests := make(chan []byte, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		wire, err := httputil.DumpRequest(r, true)
		if err != nil {
			return // the reporter sends another request
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

// freshPoll is the interval of a wait's checks.
const freshPoll = 20 * time.Millisecond
