package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// firstProbe measures the time from exec to the first call that a plugin
// receives, with a destination at which nobody listens.
func (l *lab) firstProbe(ctx context.Context) (err error) {
	l.say("%d starts of the reporter without an API server", l.plan.starts)
	s, err := l.newSite("start", 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	dead, err := nobody()
	if err != nil {
		return err
	}
	kubeconfig, err := s.kubeconfig(dead)
	if err != nil {
		return err
	}
	if _, err := s.file.swap(s.render(settings{interval: time.Second, kubeconfig: kubeconfig, keyIDs: []int{1, 2}})); err != nil {
		return err
	}
	var took []time.Duration
	for range l.plan.starts {
		d, err := s.timeStart(ctx)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	l.latency(fmt.Sprintf("exec to first Status call, median of %d", l.plan.starts), took, maxStart)
	return nil
}

// timeStart starts a reporter, and returns how long the first plugin waited for
// its first call.
func (s *site) timeStart(ctx context.Context) (time.Duration, error) {
	for _, p := range s.plugins {
		p.ResetCounters()
	}
	reporter, err := s.start(nil)
	if err != nil {
		return 0, err
	}
	defer reporter.stop()
	var firsts []time.Time
	for _, p := range s.plugins {
		first, err := firstCall(ctx, p)
		if err != nil {
			return 0, errors.Join(err, reporter.alive())
		}
		firsts = append(firsts, first)
	}
	return slices.MinFunc(firsts, time.Time.Compare).Sub(reporter.began), nil
}

// reload measures the time from a change of the file to the first call that a
// new plugin receives.
func (l *lab) reload(ctx context.Context) (err error) {
	l.say("%d changes of the file", l.plan.swaps)
	const plugins = 4
	s, err := l.newSite("reload", plugins)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// With an hour's interval nothing but a change leads to a probe, and with one
	// plugin at a time each is new to the reporter.
	content := func(i int) string {
		return s.render(settings{interval: time.Hour, keyIDs: []int{i%plugins + 1}})
	}
	if _, err := s.file.swap(content(0)); err != nil {
		return err
	}
	reporter, err := s.start(nil)
	if err != nil {
		return err
	}
	defer reporter.stop()
	if _, err := firstCall(ctx, s.plugins[0]); err != nil {
		return errors.Join(err, reporter.alive())
	}
	var took []time.Duration
	for i := 1; i <= l.plan.swaps; i++ {
		// Not in step with the timers of the watcher.
		if err := pause(ctx, time.Duration(100+i%7*9)*time.Millisecond); err != nil {
			return err
		}
		p := s.plugins[i%plugins]
		p.ResetCounters()
		changed, err := s.file.swap(content(i))
		if err != nil {
			return err
		}
		first, err := firstCall(ctx, p)
		if err != nil {
			return errors.Join(err, reporter.alive())
		}
		took = append(took, first.Sub(changed))
	}
	l.latency(fmt.Sprintf("file change to first probe of a new plugin, median of %d", l.plan.swaps), took, maxReload)
	return nil
}

// latency judges the median: the slowest depends on who else uses the machine,
// and is told.
func (l *lab) latency(what string, took []time.Duration, bound time.Duration) {
	middle := median(took)
	l.table.add(row{what: what, measured: milliseconds(middle), bound: milliseconds(bound), verdict: atMost(middle, bound)})
	l.table.add(row{what: "  the slowest of them", measured: milliseconds(slices.Max(took))})
}
