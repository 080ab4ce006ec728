package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
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

// manyReloads has a reporter reload its file again and again, each time when the
// last is in force, and compares what it holds after a tenth of them, when every
// pool and table has found its size, with what it holds at the end. Each reload
// brings a plugin and drops another; every tenth changes the destination too.
func (l *lab) manyReloads(ctx context.Context) (_ *gain, err error) {
	s, err := l.newSite("reloads", 3)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	kubeconfig, err := s.kubeconfig(l.credential())
	if err != nil {
		return nil, err
	}
	content := func(i int) string {
		c := settings{interval: time.Second, kubeconfig: kubeconfig, keyIDs: []int{1, 2 + i%2}}
		c.writeTimeout = time.Duration(2+i/(cycle/2)%2) * time.Second
		return s.render(c)
	}
	if _, err := s.file.swap(content(0)); err != nil {
		return nil, err
	}
	log := newConfigLog()
	reporter, err := s.start(log)
	if err != nil {
		return nil, err
	}
	defer func() {
		reporter.stop()
		log.close()
	}()
	if err := log.await(ctx, content(0)); err != nil {
		return nil, errors.Join(err, reporter.alive())
	}
	first := l.plan.reloads / 10 / cycle * cycle
	last := l.plan.reloads / cycle * cycle
	var before holdings
	for i := 1; i <= last; i++ {
		if _, err := s.file.swap(content(i)); err != nil {
			return nil, err
		}
		if err := log.await(ctx, content(i)); err != nil {
			return nil, errors.Join(err, reporter.alive())
		}
		if i == first {
			if before, err = s.holdings(ctx, reporter, i); err != nil {
				return nil, err
			}
		}
		if i%max(first, 1000) == 0 {
			l.say("%d of %d reloads", i, last)
		}
	}
	after, err := s.holdings(ctx, reporter, last)
	if err != nil {
		return nil, err
	}
	return &gain{first, last, before, after}, nil
}

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

func (s *site) holdings(ctx context.Context, reporter *process, reloaded int) (holdings, error) {
	h := holdings{goroutines: math.MaxInt, descriptors: math.MaxInt, heap: math.MaxInt64}
	// The destination has just changed: until the next write there is no connection.
	if err := pause(ctx, 2500*time.Millisecond); err != nil {
		return h, err
	}
	scraper := newScraper(s.serving)
	defer scraper.close()
	for range samples {
		m, err := scraper.scrape(ctx)
		if err != nil {
			return h, errors.Join(err, reporter.alive())
		}
		if got := m[reloads]; got != float64(reloaded+1) { // the first reading counts
			return h, fmt.Errorf("the reporter counts %.0f reloads, there were %d", got, reloaded+1)
		}
		open, err := descriptors(reporter.pid)
		if err != nil {
			return h, err
		}
		h.goroutines = min(h.goroutines, int(m[goroutines]))
		h.descriptors = min(h.descriptors, open)
		h.heap = min(h.heap, int64(m[heap]))
		if err := pause(ctx, sampleEvery); err != nil {
			return h, err
		}
	}
	var err error
	h.memory, err = memoryOf(reporter.pid)
	return h, err
}

func (l *lab) gained(g *gain) {
	when, before, after := fmt.Sprintf("from reload %d to %d: ", g.first, g.last), g.before, g.after
	count := func(what string, before, after int) {
		l.table.add(row{
			what:     when + what + " gained",
			measured: fmt.Sprintf("%d to %d", before, after),
			value:    fmt.Sprintf("%+d", after-before),
			bound:    "0",
			verdict:  atMost(after-before, 0),
		})
	}
	count("goroutines", before.goroutines, after.goroutines)
	count("descriptors", before.descriptors, after.descriptors)
	size := func(what string, before, after int64) row {
		return row{
			what:     when + what + " gained",
			measured: megabytes(before) + " to " + megabytes(after),
			value:    fmt.Sprintf("%+d bytes", after-before),
		}
	}
	live := size("live heap", before.heap, after.heap)
	live.bound, live.verdict = fmt.Sprintf("%d bytes", maxHeapGain), atMost(after.heap-before.heap, maxHeapGain)
	l.table.add(live)
	l.table.add(size("resident memory", before.memory.all, after.memory.all))
}

// configLog follows a reporter's log for the files that it has put in force: to
// be told costs the reporter nothing, to ask it 10,000 times would.
type configLog struct {
	*io.PipeWriter
	sums chan string
}

func newConfigLog() *configLog {
	read, write := io.Pipe()
	l := &configLog{write, make(chan string, 16)}
	go func() {
		defer close(l.sums)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			if sum, ok := inForce(lines.Text()); ok {
				l.sums <- sum
			}
		}
	}()
	return l
}

// close ends the following; nothing is written any more.
func (l *configLog) close() {
	_ = l.Close() // never fails, says its documentation
	for range l.sums {
		// until the follower has ended
	}
}

// inForce returns the SHA-256 of the file that a line of the log says is in force.
func inForce(line string) (sum string, ok bool) {
	if !strings.Contains(line, `"Configuration in force"`) {
		return "", false
	}
	_, rest, _ := strings.Cut(line, `sha256="`)
	sum, _, ok = strings.Cut(rest, `"`)
	return sum, ok
}

// await waits until the file with this content is in force.
func (l *configLog) await(ctx context.Context, content string) error {
	sum := sha256.Sum256([]byte(content))
	want := hex.EncodeToString(sum[:])
	timeout := time.After(patience)
	for {
		select {
		case got, open := <-l.sums:
			if got == want {
				return nil
			}
			if !open {
				return errors.New("the reporter's log ended")
			}
		case <-timeout:
			return fmt.Errorf("a changed file was not in force within %s", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
