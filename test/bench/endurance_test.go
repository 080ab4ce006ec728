package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	// cycle is the number of reloads after which the files repeat, so samples are taken in the same state.
	cycle = 20
	// samples is how often values that fluctuate are read for their minimum: probes are under way, and the heap grows
	// until a collection. Scraping makes enough garbage to cause collections.
	samples     = 300
	sampleEvery = 10 * time.Millisecond
)

// held are values of a process, and how much each may grow. Goroutines vary with the state of each connection.
var held = []struct {
	what  string
	bound int64
}{{"goroutines", v1alpha1.MaxPlugins}, {"descriptors", 0}, {"bytes of live heap", maxHeapGain}, {"bytes resident (VmRSS)", maxMemoryGain}}

// holdings are the values of held, each the minimum of the samples.
type holdings [4]int64

func (n *node) holdings(p *process) (least holdings) {
	// If the destination has just changed, no connection exists before the next write.
	n.pause(2500 * time.Millisecond)
	for sample := range samples {
		m := n.scrape("http://"+n.serving, "")
		for i, now := range (holdings{int64(m[goroutines]), int64(p.descriptors()), int64(m[heap]), p.memory().all}) {
			if sample == 0 || now < least[i] {
				least[i] = now
			}
		}
		n.pause(sampleEvery)
	}
	return least
}

// endure repeats an event in rounds, each of which has several events. It compares the values of held after a tenth of
// the rounds, when pools and tables have their final size, with those at the end.
func (n *node) endure(p *process, what string, rounds, each int, round func(i int)) {
	first := max(rounds/10/cycle*cycle, cycle)
	var before holdings
	for i := 1; i <= rounds; i++ {
		round(i)
		if i == first {
			before = n.holdings(p)
		}
		if i%first == 0 {
			n.progress("%d of %d %s", i*each, rounds*each, what)
		}
	}
	after := n.holdings(p)
	for i, h := range held {
		what := fmt.Sprintf("from %d to %d %s: %s, %d to %d", first*each, rounds*each, what, h.what, before[i], after[i])
		judge(n.fixture, what, after[i]-before[i], h.bound, number)
	}
}

// manyReloads reloads a reporter's file many times, each time when the last one is active. Each reload adds a plugin
// and drops another one. Every tenth also changes the destination.
func (f *fixture) manyReloads(reporter string) {
	n := f.newNode("reloads", reporter, 3)
	kubeconfig := n.kubeconfig(f.access)
	reload := func(i int) {
		n.configure(n.render(settings{
			interval: time.Second, kubeconfig: kubeconfig, keyIDs: []int{1, 2 + i%2},
			writeTimeout: time.Duration(2+i/(cycle/2)%2) * time.Second,
		}))
		n.until("a reload", 5*time.Millisecond, func() bool { return n.scrape("http://"+n.serving, "")[reloaded] == float64(i+1) })
	}
	p := n.runProbing(settings{interval: time.Second, kubeconfig: kubeconfig, keyIDs: []int{1, 2}})
	defer p.end()
	n.endure(p, "reloads", f.reloads/cycle*cycle, 1, reload)
}

// manyFlaps crashes and restarts all plugins of a reporter many times.
func (f *fixture) manyFlaps(reporter string) {
	n := f.newNode("flaps", reporter, v1alpha1.MaxPlugins)
	p := n.runProbing(everyPlugin(time.Second))
	defer p.end()
	n.endure(p, "flaps", f.flaps/v1alpha1.MaxPlugins, v1alpha1.MaxPlugins, func(i int) {
		for _, plugin := range n.plugins {
			n.must(plugin.Crash())
		}
		n.probeAll(999*time.Millisecond, contract.Error)
		for _, plugin := range n.plugins {
			n.must(plugin.Return())
		}
		n.probeAll(time.Second, contract.Healthy)
	})
}

// manyFrozen probes a stopped plugin (SIGSTOP, a frozen cgroup, a deadlock) by several connections. The plugin reads
// nothing, so writes fill the sockets' buffers, and then block.
func (f *fixture) manyFrozen(reporter string) {
	n := f.newNode("frozen", reporter, 0)
	plugin := f.start("plugin", f.program("kms-plugin"), "--endpoint", "unix://"+n.socket(1),
		"--state-dir", filepath.Join(n.sockets, "state"))
	n.until("the plugin's socket", freshPoll, func() bool { _, err := os.Stat(n.socket(1)); return err == nil })
	for i := 2; i <= v1alpha1.MaxPlugins; i++ {
		n.must(os.Symlink(n.socket(1), n.socket(i)))
	}
	p := n.runProbing(everyPlugin(time.Second))
	defer p.end()
	n.must(syscall.Kill(plugin.pid, syscall.SIGSTOP))
	defer func() { n.must(syscall.Kill(plugin.pid, syscall.SIGCONT)) }() // a stopped plugin could not end
	n.endure(p, "probes of a frozen plugin", f.frozen/v1alpha1.MaxPlugins, v1alpha1.MaxPlugins, func(i int) {
		n.probeAll(time.Duration(20+i%2)*time.Millisecond, contract.Error)
	})
}

// everyPlugin returns settings with all plugins. The interval is so long that only changed settings cause probes.
func everyPlugin(timeout time.Duration) settings {
	s := settings{interval: time.Hour, timeout: timeout}
	for i := range v1alpha1.MaxPlugins {
		s.keyIDs = append(s.keyIDs, i+1)
	}
	return s
}

// runProbing starts the reporter, and returns when it has probed each plugin.
func (n *node) runProbing(s settings) *process {
	n.configure(n.render(s))
	p := n.run()
	n.until("the first address", freshPoll, func() bool {
		log, err := os.ReadFile(p.log)
		return err == nil && strings.Contains(string(log), `"Serving"`)
	})
	n.until("the first probes", freshPoll, func() bool { return n.probes(contract.Healthy) >= float64(len(s.keyIDs)) })
	return p
}

// probeAll makes the reporter probe every plugin, by a changed timeout in the file, and waits for the results.
func (n *node) probeAll(timeout time.Duration, status contract.Status) {
	want := n.probes(status) + v1alpha1.MaxPlugins
	n.configure(n.render(everyPlugin(timeout)))
	n.until("the probes of every plugin", 5*time.Millisecond, func() bool { return n.probes(status) >= want })
}

// probes returns how many probes of all plugins had a result.
func (n *node) probes(status contract.Status) (sum float64) {
	for name, value := range n.scrape("http://"+n.serving, "") {
		if strings.HasPrefix(name, contract.MetricProbes.Name) && strings.HasSuffix(name, fmt.Sprintf("status=%q}", status)) {
			sum += value
		}
	}
	return sum
}
