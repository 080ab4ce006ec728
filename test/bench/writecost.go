package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
)

// The bounds on what a reporter's write costs those who take it.
const (
	maxRevisions  = 1.1  // of etcd for each request: no request may cost two, and both ends of the time may cut one in halves
	maxReportSize = 1200 // bytes in the object, of each node with two plugins, managed fields included
)

const (
	writingInterval = time.Second // of the reporters
	writingSettle   = 5 * time.Second
	// followers are the watchers in the run that has some.
	followers = 50
)

// writing is the measurement of what reporters' writes cost.
type writing struct {
	*lab
	admin   dynamic.Interface
	etcd    *etcd
	sites   []*site
	running []*site // those whose reporters run

	idle cost // of each second, without reporters
	bare int  // bytes of the object without reports
}

// reading is what the API server and etcd have done so far, and what they were
// asked to.
type reading struct {
	at       time.Time
	etcd     etcdReading
	api      time.Duration // CPU
	requests float64       // of the reporters
	failed   float64       // of those
}

// cost is what some time cost.
type cost struct {
	seconds                       float64
	requests, failed              float64
	writes, revisions             float64 // writes are the object's
	wal, file, sent, inUse, grown float64 // bytes
	commits                       float64
	api, etcd                     time.Duration // CPU
}

func (r *reading) since(before *reading) cost {
	return cost{
		seconds:  r.at.Sub(before.at).Seconds(),
		requests: r.requests - before.requests, failed: r.failed - before.failed,
		writes: float64(r.etcd.version - before.etcd.version), revisions: float64(r.etcd.revision - before.etcd.revision),
		wal: r.etcd.wal - before.etcd.wal, file: r.etcd.file - before.etcd.file, sent: r.etcd.sent - before.etcd.sent,
		inUse: r.etcd.inUse - before.etcd.inUse, grown: r.etcd.size - before.etcd.size,
		commits: r.etcd.commits - before.etcd.commits,
		api:     r.api - before.api, etcd: r.etcd.cpu - before.etcd.cpu,
	}
}

// each is what one of n cost beyond what the same time costs anyway.
func (c cost) each(n float64, idle cost) cost {
	rest := func(all, idle float64, seconds float64) float64 { return (all - idle*seconds) / n }
	return cost{
		seconds: c.seconds / n, requests: c.requests / n, failed: c.failed / n, writes: c.writes / n,
		revisions: rest(c.revisions, idle.revisions, c.seconds),
		wal:       rest(c.wal, idle.wal, c.seconds), file: rest(c.file, idle.file, c.seconds), sent: rest(c.sent, idle.sent, c.seconds),
		inUse: rest(c.inUse, idle.inUse, c.seconds), grown: rest(c.grown, idle.grown, c.seconds),
		commits: rest(c.commits, idle.commits, c.seconds),
		api:     time.Duration(rest(float64(c.api), float64(idle.api), c.seconds)),
		etcd:    time.Duration(rest(float64(c.etcd), float64(idle.etcd), c.seconds)),
	}
}

// writes measures what three reporters that write every second cost a
// kube-apiserver and an etcd that have nothing else to do.
func (l *lab) writes(ctx context.Context) (err error) {
	if _, err := os.Stat(l.reporter); errors.Is(err, fs.ErrNotExist) {
		if err := unpack(reporterBinary, l.reporter); err != nil {
			return fmt.Errorf("%w; run `make bench`, which builds it", err)
		}
	}
	if err := l.startCluster(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stopCluster(ctx)) }()
	w, err := l.newWriting(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	l.say("nobody writes, for %s", l.plan.writing/2)
	idle, err := w.measure(ctx, l.plan.writing/2)
	if err != nil {
		return err
	}
	w.idle = idle.each(idle.seconds, cost{})
	now, err := w.etcd.stored(ctx)
	if err != nil {
		return err
	}
	w.bare = now.bytes
	l.table.add(row{what: "writes: the object without reports, with 100 conditions", measured: fmt.Sprintf("%d bytes", w.bare)})
	l.table.add(row{what: "  idle, each second: CPU of kube-apiserver, of etcd", measured: perCycle(w.idle.api) + ", " + perCycle(w.idle.etcd), value: fmt.Sprintf("%.2f revisions", w.idle.revisions)})

	condition, err := w.inForm(ctx, "Condition")
	if err != nil {
		return err
	}
	event, err := w.watched(ctx, condition)
	if err != nil {
		return err
	}
	if err := w.forget(ctx); err != nil {
		return err
	}
	for _, form := range []string{"HealthReports", "Both"} {
		if _, err := w.inForm(ctx, form); err != nil {
			return err
		}
	}
	if err := w.compaction(ctx); err != nil {
		return err
	}
	w.scale(condition, event)
	return nil
}

func (l *lab) newWriting(ctx context.Context) (_ *writing, err error) {
	w := &writing{lab: l}
	if w.admin, err = dynamic.NewForConfig(l.cluster.RESTConfig()); err != nil {
		return nil, err
	}
	if err := (&estate{admin: w.admin}).fill(ctx, apiservers.Kube); err != nil {
		return nil, err
	}
	if w.etcd, err = newEtcd(l.cluster.EtcdPID(), "/registry/"+controlplane.OperatorGroup+"/"+resource+"/"+controlplane.ClusterObject); err != nil {
		return nil, err
	}
	for _, name := range nodeNames {
		s, err := l.newSite(name, 2)
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.sites = append(w.sites, s)
	}
	return w, nil
}

func (w *writing) close() error {
	w.etcd.close()
	var errs []error
	for _, s := range w.sites {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// inForm measures reporters that write in one form, and tells of it.
func (w *writing) inForm(ctx context.Context, form string) (cost, error) {
	w.say("3 reporters write %s every second, for %s", form, w.plan.writing)
	all, err := w.reported(ctx, form, nil)
	if err != nil {
		return cost{}, err
	}
	now, err := w.etcd.stored(ctx)
	if err != nil {
		return cost{}, err
	}
	if all.writes < all.seconds*float64(len(w.sites))*0.8 {
		return cost{}, fmt.Errorf("the object was written %.0f times in %.0f s: this would not measure the work", all.writes, all.seconds)
	}
	each := all.each(all.writes, w.idle)
	revisions := each.revisions * all.writes / all.requests
	what := fmt.Sprintf("writes, %s, %.0f requests (%.0f failed), %.0f changes of the object: ", form, all.requests, all.failed, all.writes)
	w.table.add(row{
		what: what + "revisions for each request", measured: fmt.Sprintf("%.2f", revisions),
		bound: fmt.Sprintf("%.2f", maxRevisions), verdict: atMost(revisions, maxRevisions),
	})
	size := (now.bytes - w.bare) / len(w.sites)
	reportSize := row{what: "  bytes of the object, of each node's report", measured: fmt.Sprintf("%d", now.bytes), value: fmt.Sprintf("%d bytes", size)}
	if form != "Both" {
		reportSize.bound, reportSize.verdict = fmt.Sprintf("%d bytes", maxReportSize), atMost(size, maxReportSize)
	}
	w.table.add(reportSize)
	w.table.add(row{
		what: "  each write: bytes to etcd's log, to its database's file", measured: fmt.Sprintf("%.0f, %.0f", each.wal, each.file),
		value: fmt.Sprintf("%.2fx the object", (each.wal+each.file)/float64(now.bytes)),
	})
	w.table.add(row{what: "  each write: bytes more in use in the database; commits of it", measured: fmt.Sprintf("%.0f, %.2f", each.inUse, each.commits)})
	w.table.add(row{what: "  each write: CPU of kube-apiserver, of etcd", measured: perCycle(each.api) + ", " + perCycle(each.etcd)})
	return each, nil
}

// watched measures what watchers add, and returns the bytes of an event.
func (w *writing) watched(ctx context.Context, alone cost) (event int64, err error) {
	w.say("and %d watchers, for %s", followers, w.plan.writing)
	var clients *watchers
	all, err := w.reported(ctx, "Condition", func() (err error) {
		clients, err = startWatchers(ctx, w.cluster.RESTConfig(), followers)
		return err
	})
	if clients != nil {
		err = errors.Join(err, clients.stop())
	}
	if err != nil {
		return 0, err
	}
	events := clients.events.Load()
	if told := float64(events) / followers; told < all.writes {
		return 0, fmt.Errorf("%d watchers were told %d events of %.0f writes", followers, events, all.writes)
	}
	event = clients.bytes.Load() / events
	w.table.add(row{what: fmt.Sprintf("writes, each event to each of %d watchers: bytes", followers), measured: fmt.Sprintf("%d", event)})
	each := all.each(all.writes, w.idle)
	w.table.add(row{
		what: "  each write, with all of them: CPU of kube-apiserver, of etcd", measured: perCycle(each.api) + ", " + perCycle(each.etcd),
		value: perCycle((each.api-alone.api)/followers) + " for each watcher",
	})
	return event, nil
}

// reported runs the reporters and measures what they cost. beside, where it is
// given, is called when they write.
func (w *writing) reported(ctx context.Context, form string, beside func() error) (cost, error) {
	stop, err := w.startReporters(form)
	defer stop()
	if err != nil {
		return cost{}, err
	}
	if err := pause(ctx, writingSettle); err != nil {
		return cost{}, err
	}
	if beside != nil {
		if err := beside(); err != nil {
			return cost{}, err
		}
	}
	return w.measure(ctx, w.plan.writing)
}

// startReporters returns how to stop those that it started.
func (w *writing) startReporters(form string) (stop func(), err error) {
	var reporters []*process
	stop = func() {
		w.running = nil
		for _, r := range reporters {
			r.stop()
		}
	}
	for _, s := range w.sites {
		kubeconfig, err := s.kubeconfig(w.credential())
		if err != nil {
			return stop, err
		}
		file := s.render(settings{interval: writingInterval, kubeconfig: kubeconfig, keyIDs: []int{1, 2}})
		if _, err := s.file.swap(strings.Replace(file, "format: Condition", "format: "+form, 1)); err != nil {
			return stop, err
		}
		reporter, err := s.start(nil)
		if err != nil {
			return stop, err
		}
		reporters = append(reporters, reporter)
		w.running = append(w.running, s)
	}
	return stop, nil
}

func (w *writing) measure(ctx context.Context, d time.Duration) (cost, error) {
	before, err := w.read(ctx)
	if err != nil {
		return cost{}, err
	}
	if err := pause(ctx, d); err != nil {
		return cost{}, err
	}
	after, err := w.read(ctx)
	if err != nil {
		return cost{}, err
	}
	return after.since(&before), nil
}
