package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	// scrapeEvery is how often Prometheus would come.
	scrapeEvery = 30 * time.Second
	// warmUp is left out of the CPU time: the start, connecting, the handshake.
	warmUp = 5 * time.Second
)

// runner is a process that cycles, and the plugins by which its cycles are
// counted.
type runner struct {
	*process
	site   *site
	cpu    time.Duration // at the end of the warm-up
	cycles float64       // so too
}

// reading returns the CPU time and the cycles so far: calls per plugin.
func (r *runner) reading() (time.Duration, float64, error) {
	if err := r.alive(); err != nil {
		return 0, 0, err
	}
	calls := int64(0)
	for _, p := range r.site.plugins {
		calls += p.Calls(kmsplugin.CallStatus).Count
	}
	cpu, err := cpuTime(r.pid)
	return cpu, float64(calls) / float64(len(r.site.plugins)), err
}

// sinceWarmUp returns the CPU time per cycle, and the cycles.
func (r *runner) sinceWarmUp() (time.Duration, float64, error) {
	cpu, cycles, err := r.reading()
	if err != nil {
		return 0, 0, err
	}
	cycles -= r.cycles
	if cycles <= 0 {
		return 0, 0, fmt.Errorf("%s: no cycle was counted", r.name)
	}
	return time.Duration(float64(cpu-r.cpu) / cycles), cycles, nil
}

// longRun measures a reporter and the floor side by side: their CPU time in the
// first half, on a machine as quiet as it gets, and their memory at the end.
// Another reporter is made to reload beside them in the second half and on.
func (l *lab) longRun(ctx context.Context) (err error) {
	l.say("the reporter and the floor side by side, for %s", l.plan.duration)
	ours, err := l.newSite("measured", 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	theirs, err := l.newSite("baseline", 2) // a name as long
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, theirs.close()) }()
	floor, err := l.startFloor(ctx, theirs)
	if err != nil {
		return err
	}
	defer floor.stop()
	reporter, err := l.startMeasured(ours)
	if err != nil {
		return err
	}
	defer reporter.stop()
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	for _, r := range []*runner{reporter, floor} {
		if r.cpu, r.cycles, err = r.reading(); err != nil {
			return err
		}
	}
	if err := l.watch(ctx, reporter, floor, l.plan.duration/2); err != nil {
		return err
	}
	if err := l.cpuPerCycle(reporter, floor); err != nil {
		return err
	}
	reloaded := l.reloadBeside(ctx)
	err = l.watch(ctx, reporter, floor, l.plan.duration)
	if err == nil {
		err = l.resident(reporter, floor)
	}
	return errors.Join(err, reloaded(err))
}

// reloadBeside starts manyReloads. What it returns waits for their end, which it
// hastens if there was an error meanwhile.
func (l *lab) reloadBeside(ctx context.Context) (wait func(meanwhile error) error) {
	ctx, cancel := context.WithCancel(ctx)
	var found *gain
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		found, err = l.manyReloads(ctx)
	}()
	return func(meanwhile error) error {
		defer cancel()
		if meanwhile != nil {
			cancel()
		}
		<-done
		if err == nil {
			l.gained(found)
		}
		return err
	}
}

func (l *lab) startFloor(ctx context.Context, s *site) (*runner, error) {
	request, err := s.capture(ctx, l.credential(), 1, 2)
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(s.dir, "floor-ca.crt")
	if err := os.WriteFile(ca, l.credential().ca, 0o600); err != nil {
		return nil, err
	}
	p, err := startProcess("the floor", filepath.Join(s.dir, "floor.log"), nil, l.floor,
		"--request", request, "--server", l.cluster.Address(), "--ca", ca, s.socket(1), s.socket(2))
	return &runner{process: p, site: s}, err
}

func (l *lab) startMeasured(s *site) (*runner, error) {
	kubeconfig, err := s.kubeconfig(l.credential())
	if err != nil {
		return nil, err
	}
	if _, err := s.file.swap(s.render(settings{interval: time.Second, kubeconfig: kubeconfig, keyIDs: []int{1, 2}})); err != nil {
		return nil, err
	}
	p, err := s.start(nil)
	return &runner{process: p, site: s}, err
}

// watch waits until the reporter has lived for a time, and scrapes it meanwhile.
// It fails if the reporter does not do its work.
func (l *lab) watch(ctx context.Context, reporter, floor *runner, age time.Duration) error {
	metrics := newScraper(reporter.site.serving)
	defer metrics.close()
	end := reporter.began.Add(age)
	for time.Until(end) > 0 {
		if err := pause(ctx, min(scrapeEvery, time.Until(end))); err != nil {
			return err
		}
		m, err := metrics.scrape(ctx)
		if err != nil {
			return errors.Join(err, reporter.alive())
		}
		if probed := m[healthyProbes]; m[writes] < probed*9/10 {
			return fmt.Errorf("of %.0f rounds of probes only %.0f were written: this would not measure the work", probed, m[writes])
		}
		cpu, _, err := reporter.sinceWarmUp()
		if err != nil {
			return err
		}
		least, _, err := floor.sinceWarmUp()
		if err != nil {
			return err
		}
		l.say("CPU per cycle so far: %s, floor %s", perCycle(cpu), perCycle(least))
	}
	return nil
}

func (l *lab) cpuPerCycle(reporter, floor *runner) error {
	cpu, cycles, err := reporter.sinceWarmUp()
	if err != nil {
		return err
	}
	least, _, err := floor.sinceWarmUp()
	if err != nil {
		return err
	}
	ratio := float64(cpu) / float64(least)
	l.table.add(row{
		what:     fmt.Sprintf("CPU per cycle, 2 plugins, over %.0f cycles", cycles),
		measured: perCycle(cpu),
		floor:    perCycle(least),
		value:    fmt.Sprintf("%.2fx", ratio),
		bound:    fmt.Sprintf("%.2fx", maxCPU),
		verdict:  atMost(ratio, maxCPU),
	})
	return nil
}

func (l *lab) resident(reporter, floor *runner) error {
	ours, err := memoryOf(reporter.pid)
	if err != nil {
		return err
	}
	theirs, err := memoryOf(floor.pid)
	if err != nil {
		return err
	}
	judged := atMost(ours.all, maxResident)
	if l.plan.duration < fullTime {
		judged = notJudged
	}
	l.table.add(row{
		what:     fmt.Sprintf("resident memory (VmRSS) after %s", l.plan.duration),
		measured: megabytes(ours.all),
		floor:    megabytes(theirs.all),
		bound:    megabytes(maxResident),
		verdict:  judged,
	})
	judged = atMost(ours.anon, maxAnon)
	if l.plan.duration < fullTime {
		judged = notJudged
	}
	l.table.add(row{
		what:     "  of it not the binary's (RssAnon)",
		measured: megabytes(ours.anon),
		floor:    megabytes(theirs.anon),
		bound:    megabytes(maxAnon),
		verdict:  judged,
	})
	return nil
}
