package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
)

const (
	// cycle is after how many reloads the same file comes again: the samples
	// are taken in the same state.
	cycle = 20
	// samples are taken of what goes up and down by itself, for its minimum:
	// probes are under way, and the heap is what it is until it is collected.
	// Scraping makes enough garbage for that, several times.
	samples     = 300
	sampleEvery = 10 * time.Millisecond
)

// gain is what a process held after the first and after the last of many reloads.
type gain struct {
	first, last   int
	before, after holdings
}

// holdings are what a process must not gain, each the least that was seen.
type holdings struct {
	goroutines, descriptors int
	heap                    int64
	memory                  memory
}

// manyReloads has a reporter reload its file again and again, each time when the
// last is active, and compares what it holds after a tenth of them, when every
// pool and table has found its size, with what it holds at the end. Each reload
// brings a plugin and drops another; every tenth changes the destination too.
func (f *fixture) manyReloads(reporter string) *gain {
	n := f.newNode("reloads", reporter, 3)
	kubeconfig := n.kubeconfig(f.access())
	content := func(i int) string {
		return n.render(settings{
			interval: time.Second, kubeconfig: kubeconfig, keyIDs: []int{1, 2 + i%2},
			writeTimeout: time.Duration(2+i/(cycle/2)%2) * time.Second,
		})
	}
	n.configure(content(0))
	p := n.run()
	defer p.end()
	log, err := os.Open(p.log)
	n.must(err)
	defer log.Close()
	active := follower{log: log}
	n.must(active.await(running, content(0)))
	g := &gain{first: f.reloads / 10 / cycle * cycle, last: f.reloads / cycle * cycle}
	for i := 1; i <= g.last; i++ {
		n.configure(content(i))
		n.must(active.await(running, content(i)))
		if i == g.first {
			g.before = n.holdings(p, i)
		}
		if i%max(g.first, 1000) == 0 {
			f.progress("%d of %d reloads", i, g.last)
		}
	}
	g.after = n.holdings(p, g.last)
	return g
}

func (n *node) holdings(p *process, reloads int) holdings {
	n.Helper()
	h := holdings{goroutines: math.MaxInt, descriptors: math.MaxInt, heap: math.MaxInt64}
	// The destination has just changed: until the next write there is no connection.
	n.pause(2500 * time.Millisecond)
	for range samples {
		m := n.scrape("http://"+n.serving, "")
		if got := m[reloaded]; got != float64(reloads+1) { // the first reading counts
			n.Fatalf("the reporter counts %.0f reloads, there were %d", got, reloads+1)
		}
		h.goroutines = min(h.goroutines, int(m[goroutines]))
		h.descriptors = min(h.descriptors, p.descriptors())
		h.heap = min(h.heap, int64(m[heap]))
		n.pause(sampleEvery)
	}
	h.memory = p.memory()
	return h
}

func (f *fixture) gained(g *gain) {
	when := fmt.Sprintf("from reload %d to %d: ", g.first, g.last)
	for _, c := range []struct {
		what          string
		before, after int
	}{{"goroutines", g.before.goroutines, g.after.goroutines}, {"descriptors", g.before.descriptors, g.after.descriptors}} {
		f.add(row{
			what: when + c.what + " gained", measured: fmt.Sprintf("%d to %d", c.before, c.after), value: fmt.Sprintf("%+d", c.after-c.before),
			bound: "0", verdict: atMost(c.after-c.before, 0),
		})
	}
	size := func(what string, before, after int64) row {
		return row{what: when + what + " gained", measured: megabytes(before) + " to " + megabytes(after), value: fmt.Sprintf("%+d bytes", after-before)}
	}
	live := size("live heap", g.before.heap, g.after.heap)
	live.bound, live.verdict = fmt.Sprintf("%d bytes", maxHeapGain), atMost(g.after.heap-g.before.heap, maxHeapGain)
	f.add(live)
	f.add(size("resident memory", g.before.memory.all, g.after.memory.all))
}

// follower follows a reporter's log for the files that it applies: to read the log
// costs the reporter nothing, to scrape it 10,000 times would.
type follower struct {
	log  io.Reader
	rest string // what was written since the last active file
}

// await waits until the file with this content is active.
func (l *follower) await(ctx context.Context, content string) error {
	want := fmt.Sprintf(`sha256="%x"`, sha256.Sum256([]byte(content)))
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text, err := io.ReadAll(l.log) // what was written since
		if err != nil {
			return err
		}
		l.rest += string(text)
		for line := range strings.Lines(l.rest) {
			if strings.Contains(line, `"Configuration active"`) && strings.Contains(line, want) {
				l.rest = ""
				return nil
			}
		}
	}
	return fmt.Errorf("a changed file was not active within %s", waitLimit)
}
