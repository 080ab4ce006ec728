package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
)

// apiServerCompacts is how often kube-apiserver has etcd compacted
// (--etcd-compaction-interval). It forgets what was there the time before, so that
// etcd holds the revisions of one to two of these.
const apiServerCompacts = 5 * time.Minute

// read tells what was done so far. The CPU of the API server is no more than read:
// its own metrics are a large part of a second's work.
func (w *writing) read(ctx context.Context) (r reading, err error) {
	r.at = time.Now()
	if r.etcd, err = w.etcd.read(ctx); err != nil {
		return r, err
	}
	if r.api, err = cpuTime(w.cluster.APIServerPID()); err != nil {
		return r, err
	}
	for _, s := range w.running {
		metrics := newScraper(s.serving)
		m, err := metrics.scrape(ctx)
		metrics.close()
		if err != nil {
			return r, err
		}
		for series, n := range m {
			if !strings.HasPrefix(series, "kms_health_reporter_writes_total{") {
				continue
			}
			r.requests += n
			if !strings.Contains(series, `result="success"`) {
				r.failed += n
			}
		}
	}
	return r, nil
}

// forget takes the conditions of the reporters off the object.
func (w *writing) forget(ctx context.Context) error {
	object := apiservers.Kube.Status()
	delete(object, "status")
	for _, s := range w.sites {
		if err := apiservers.Apply(ctx, w.admin, health.ConditionManager(s.name), controlplane.OperatorGVR(resource), "", object, "status"); err != nil {
			return err
		}
	}
	now, err := w.etcd.stored(ctx)
	if err == nil && now.bytes != w.bare {
		err = fmt.Errorf("without reports the object had %d bytes, and now has %d", w.bare, now.bytes)
	}
	return err
}

// compaction measures what it is to etcd to forget all that was written.
func (w *writing) compaction(ctx context.Context) error {
	w.say("a compaction")
	before, err := w.etcd.read(ctx)
	if err != nil {
		return err
	}
	if err := w.etcd.compact(ctx, before.revision); err != nil {
		return err
	}
	after, err := w.etcd.read(ctx)
	if err != nil {
		return err
	}
	// What was freed is told by the commit after the next.
	for range 3 {
		if err := (&estate{admin: w.admin}).fill(ctx, apiservers.Kube); err != nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	later, err := w.etcd.read(ctx)
	if err != nil {
		return err
	}
	n := float64(before.revision)
	w.table.add(row{
		what:     fmt.Sprintf("writes: compaction of %d revisions: in use before and after", before.revision),
		measured: megabytes(int64(before.inUse)) + ", " + megabytes(int64(later.inUse)), value: "file " + megabytes(int64(later.size)),
	})
	w.table.add(row{
		what: "  for each revision: CPU of etcd; bytes to the file", measured: fmt.Sprintf("%s; %.0f", perCycle(time.Duration(float64(after.cpu-before.cpu)/n)), (after.file-before.file)/n),
	})
	return nil
}

// scale tells what the writes of one node come to in an hour, each of them a
// revision.
func (w *writing) scale(each cost, event int64) {
	for _, interval := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, time.Minute} {
		n := float64(time.Hour / interval)
		w.table.add(row{
			what:     fmt.Sprintf("writes: a node in an hour, every %s: revisions; to etcd's disk; to each watcher", interval),
			measured: fmt.Sprintf("%.0f; %s; %s", n, megabytes(int64(n*(each.wal+each.file))), megabytes(int64(n*float64(event)))),
			value:    fmt.Sprintf("%.1f s of CPU", n*(each.api+each.etcd).Seconds()),
		})
		held := float64(2 * apiServerCompacts / interval)
		w.table.add(row{what: fmt.Sprintf("  held in etcd's database, of %s", 2*apiServerCompacts), measured: megabytes(int64(held * each.inUse))})
	}
}
