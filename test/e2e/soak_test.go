//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// fault is something that was wrong with a plugin for a time, or, without a name, a time
// in which anything may be.
type fault struct {
	server     apiservers.Server
	name       string
	start, end time.Time
}

// Faults of plugins and restarts of everything, drawn at random. Each fault longer than
// an interval is seen on the operator resource, and none that was not.
func testSoak(t *testing.T) {
	h := newScenario(t, true)
	h.awaitHealthy(apiservers.All...)
	length := *soakFor
	random := rand.New(rand.NewPCG(*soakSeed, 0))
	t.Logf("seed %d, %s", *soakSeed, length)
	var faults []fault
	restarts := map[string]int{}
	start := time.Now()
	var warm map[string]float64
	for time.Since(start) < length {
		// The last part is for the processes that are to be measured over it.
		early := time.Since(start) < length/3
		if !early && warm == nil {
			h.awaitHealthy(apiservers.All...)
			time.Sleep(5 * interval)
			warm = h.footprint()
		}
		if random.IntN(8) == 0 {
			began := time.Now()
			what := h.restart(random, early)
			restarts[what]++
			for _, server := range apiservers.All {
				faults = append(faults, fault{server: server, start: began, end: time.Now()})
			}
			continue
		}
		server := apiservers.All[random.IntN(len(apiservers.All))]
		name := []string{"unhealthy", "rpc-error", "hang", "crash", "empty-key-id"}[random.IntN(5)]
		args := map[string][]string{"unhealthy": {"soaked"}, "rpc-error": {"Internal", "soaked"}}[name]
		f := fault{server: server, name: name, start: time.Now()}
		plugin := h.pluginOf(server)
		h.do(plugin, name, args...)
		time.Sleep(300*time.Millisecond + rand.N(4*time.Second))
		f.end = time.Now()
		if name == "crash" {
			h.do(plugin, "return")
		}
		h.do(plugin, "heal")
		faults = append(faults, f)
		time.Sleep(time.Second + rand.N(2*time.Second))
	}
	h.awaitHealthy(apiservers.All...)
	time.Sleep(5 * interval)

	seen, long := 0, 0
	for _, f := range faults {
		if f.name == "" || f.end.Sub(f.start) < detectable(f.name) {
			continue
		}
		long++
		if h.saw(f) {
			seen++
		} else {
			t.Errorf("%s of %s for %s, from %s on: not seen", f.name, f.server.Name, f.end.Sub(f.start).Round(10*time.Millisecond), f.start.Format(time.TimeOnly))
		}
	}
	if long == 0 {
		t.Fatal("no fault was longer than an interval")
	}
	states := 0
	for _, server := range apiservers.All {
		for _, s := range h.seen.States(server, start) {
			states++
			for _, e := range s.Reports[h.node().Name] {
				if e.Status != contract.Healthy && !explained(faults, server, e.LastChecked) {
					t.Errorf("%s: %s at %s, without a cause: %s", server.Name, e.Status, e.LastChecked.Format(time.TimeOnly), e.Detail)
				}
			}
		}
	}
	if warm == nil {
		t.Fatal("the soak was too short to measure growth")
	}
	for name, now := range h.footprint() {
		was, found := warm[name]
		if !found {
			t.Errorf("%s was not there", name)
			continue
		}
		allowed := 5.0
		if strings.HasSuffix(name, "MB") {
			allowed = 4
		}
		if now > was+allowed {
			t.Errorf("%s grew from %.1f to %.1f", name, was, now)
		}
		t.Logf("%s: %.1f, then %.1f", name, was, now)
	}
	times.took("soak", fmt.Sprintf("%d faults, %d longer than an interval, %d seen; restarts %v; %d writes", len(faults), long, seen, restarts, states), time.Since(start), noTime, "")
}

// detectable is from how long on a fault must be seen: an interval with its jitter, the
// time in which a plugin that hangs is given up, and a write.
func detectable(name string) time.Duration {
	const write = 500 * time.Millisecond
	if name == "hang" {
		return interval*11/10 + interval + write
	}
	return interval*11/10 + write
}

// saw returns whether a report of a fault was written while it held, or just after.
func (h *scenario) saw(f fault) bool {
	for _, s := range h.seen.States(f.server, f.start) {
		if s.At.After(f.end.Add(time.Second)) {
			return false
		}
		for _, e := range s.Reports[h.node().Name] {
			if e.Status != contract.Healthy {
				return true
			}
		}
	}
	return false
}

// explained returns whether something was wrong with a server when it was checked, which a
// report shows to the second.
func explained(faults []fault, server apiservers.Server, checked time.Time) bool {
	for _, f := range faults {
		if f.server == server && !checked.Before(f.start.Truncate(time.Second)) && checked.Before(f.end.Add(interval*3/2)) {
			return true
		}
	}
	return false
}

// restart kills something, and waits until everything is healthy again.
func (h *scenario) restart(random *rand.Rand, early bool) string {
	h.t.Helper()
	things := []struct{ what, pod, container string }{
		{"sidecar", reporterPods[apiservers.OpenShift], reporterContainer},
		{"agent", reporterPods[apiservers.OAuth], reporterContainer},
		{"plugin", "apiserver-", "kms-plugin-1"},
		{"aggregated API server", "apiserver-", "openshift-apiserver"},
		{"operator", operatorPods, operatorContainer},
		{"kube-apiserver", "kube-apiserver-", "kube-apiserver"},
		{"companion", reporterPods[apiservers.Kube], reporterContainer},
	}
	n := len(things)
	if !early {
		n -= 3 // these are measured; and nothing is learned from kube-apiserver a tenth time
	}
	it := things[random.IntN(n)]
	h.kill(it.pod, it.container)
	h.awaitAnswers()
	h.awaitHealthy(apiservers.All...)
	// The conditions may be those of before.
	since := time.Now()
	for _, server := range apiservers.All {
		h.await(2*time.Minute, server.Name+" reports again", func() error { return h.now(server).Fresh(h.node().Name, since.Add(interval)) })
	}
	h.awaitHealthy(apiservers.All...)
	return it.what
}

// footprint is what the companion and the operator hold.
func (h *scenario) footprint() map[string]float64 {
	h.t.Helper()
	found := map[string]float64{}
	for name, p := range map[string]int{
		"companion": h.process(reporterPods[apiservers.Kube], reporterContainer).PID,
		"operator":  h.process(operatorPods, operatorContainer).PID,
	} {
		files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p), "fd"))
		h.must(err)
		found[name+" descriptors"] = float64(len(files))
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p), "status"))
		h.must(err)
		for line := range strings.Lines(string(status)) {
			if rest, is := strings.CutPrefix(line, "VmRSS:"); is {
				kB, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				h.must(err)
				found[name+" resident MB"] = kB / 1000
			}
		}
	}
	goroutines, err := h.metric("go_goroutines")
	h.must(err)
	found["companion goroutines"] = goroutines
	return found
}
