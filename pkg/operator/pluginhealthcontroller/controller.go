// Package pluginhealthcontroller writes the conditions of the roll-up (pkg/rollup) to the operator resource of each API
// server. It works while Secrets and ConfigMaps cannot be read: it reads only operator resources, Nodes and Pods, and
// gets the state of the reporters' delivery as values of package delivery.
package pluginhealthcontroller

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const (
	resync  = 5 * time.Minute
	workers = 4
)

// Options of a Controller.
type Options struct {
	Client   dynamic.Interface
	Event    func(target, eventType, reason, message string)
	Registry prometheus.Registerer
	Now      func() time.Time // by the API server's clock
	// Unanswered is when the API server last did not answer a request, by the local clock; zero: it always did.
	Unanswered func() time.Time
	Queue      *syncqueue.Queue // names of API servers
	// Reporters gets the name of an API server when nothing of it is left on its resource, or when the silence of its
	// reports is to be recorded. ClusterOperator gets contract.ClusterOperator after a verdict has changed.
	Reporters, ClusterOperator informers.Queue
}

// Controller keeps the roll-ups.
type Controller struct {
	Options
	metrics *metrics

	mu      sync.Mutex
	targets map[string]*healthState
}

// healthState is the state of a target between its syncs, for the one worker that syncs it; the rest is under mu.
type healthState struct {
	// conditions are those that were applied last, and written is the resource's version with them. They count as the
	// current ones until the watch shows that version.
	conditions map[string]operatorstatus.Condition
	written    string
	shown      string    // the version that the watch showed last
	owner      string    // the other manager that owns KMSPluginsDegraded; empty: none
	ownedUntil time.Time // when to try again to own it
	showing    time.Time // when the resource was last known to be up to date: see rollup.Input.Behind
	removed    bool      // all was removed, except another owner's, while the target is off
	seen       rollup.Seen
	agreement  rollup.Agreement
	stood      time.Time              // until when KMSPluginsDegraded may stand, which was True at the first look
	attendance map[string]nodeHistory // by node; nil before the first look

	watching watchClock        // under mu
	target   delivery.Snapshot // under mu
	stands   time.Time         // under mu: since when the Status of target is unchanged
	verdict  delivery.Verdict  // under mu
}

// watchClock is the local clock, but stands still while the operator resource cannot be read: reports must not age
// then.
type watchClock struct {
	blind time.Duration // for how long it stood still
	away  bool
	last  time.Time // when away was observed
}

// look observes whether the operator resource cannot be read (away), and returns a local time by this clock.
func (w *watchClock) look(local time.Time, away bool) time.Time {
	if (w.away || away) && !w.last.IsZero() {
		w.blind += local.Sub(w.last)
	}
	w.away, w.last = away, local
	return w.at(local)
}

// at returns a local time by this clock.
func (w *watchClock) at(local time.Time) time.Time { return local.Add(-w.blind) }

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options: o, targets: map[string]*healthState{}, metrics: newMetrics(o.Registry),
	}
}

// Set sets the published state of a target. Before that, the target is not synced.
func (c *Controller) Set(t delivery.Snapshot) {
	c.mu.Lock()
	e := c.targets[t.Name]
	now := time.Now()
	if e == nil {
		e = &healthState{showing: now, seen: rollup.Seen{Resumed: t.State.Silent}}
		c.targets[t.Name] = e
	}
	if e.target.Status != t.Status {
		e.stands = e.watching.at(now)
	}
	e.target = t
	e.verdict.Done = e.verdict.Done && over(&t)
	c.mu.Unlock()
	c.Queue.Enqueue(t.Name)
}

// over reports whether an API server has no roll-up any more. One that is enabled again must not stay Done because of
// an earlier removal.
func over(t *delivery.Snapshot) bool { return t.Off || t.OtherInstallation }

// Remove removes a target.
func (c *Controller) Remove(name string) {
	c.mu.Lock()
	delete(c.targets, name)
	c.mu.Unlock()
	c.metrics.set(name, nil, time.Time{})
	c.Queue.Forget(name)
	c.ClusterOperator.Enqueue(contract.ClusterOperator)
}

// Verdict returns the last verdict of a target.
func (c *Controller) Verdict(name string) (v delivery.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.targets[name]; e != nil {
		v = e.verdict
	}
	return v
}

// Run syncs targets until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) {
	c.Queue.Work(ctx, workers, func(ctx context.Context, name string) time.Duration {
		if name == syncqueue.All {
			c.enqueueAll()
			return 0
		}
		return c.sync(ctx, name)
	})
}

func (c *Controller) enqueueAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.targets {
		c.Queue.Add(name)
	}
}

// sync updates the roll-up of one target. It returns how soon to sync it again at the latest; zero: it was removed.
func (c *Controller) sync(ctx context.Context, name string) time.Duration {
	c.mu.Lock()
	e := c.targets[name]
	if e == nil {
		c.mu.Unlock()
		return 0
	}
	t, before := e.target, e.verdict
	err := t.Sources.Resource.Err()
	now := e.watching.look(time.Now(), err != nil)
	in := rollup.Input{Now: now, Wall: c.Now(),
		Delivery: rollup.Delivery{Reason: string(t.Status.Reason), Message: t.Status.Message, Since: e.stands}}
	c.mu.Unlock()
	s := &healthSync{Controller: c, healthState: e, target: &t, now: now, again: now.Add(resync)}
	s.node = func(name string) (informers.Node, bool) { return t.Sources.Cluster.Nodes.Get("", name) }
	if s.unanswered = e.watching.at(c.Unanswered()); err != nil {
		s.unanswered = now
	}
	verdict, judged := s.judge(ctx, &in)
	if !judged { // too little is known for a new one
		klog.V(2).InfoS("No new verdict: too little is known", "apiServer", name)
		verdict.Done = before.Done
		if verdict.Degraded.Type == "" {
			verdict.Degraded = before.Degraded
		}
	}
	verdict.Judged = judged || before.Judged
	c.mu.Lock()
	verdict.Done = verdict.Done && over(&e.target)
	e.verdict = verdict
	c.mu.Unlock()
	if !reflect.DeepEqual(before, verdict) {
		c.ClusterOperator.Enqueue(contract.ClusterOperator)
	}
	if verdict.Done && !before.Done || !maps.Equal(verdict.Silent, before.Silent) {
		c.Reporters.Enqueue(name)
	}
	return max(1, s.again.Sub(e.watching.at(time.Now())))
}

type healthSync struct {
	*Controller
	*healthState
	target *delivery.Snapshot
	node   func(name string) (n informers.Node, exists bool)
	now    time.Time // by the watchClock, like again
	again  time.Time // when to sync again at the latest
	// unanswered is when a request last had no answer: now while the resource cannot be read. To the watch alone, an API
	// server that drops packets looks like a quiet one.
	unanswered time.Time
	// resource is what the watch shows; nil: nothing. before is the attendance before this sync.
	resource *operatorstatus.Status
	before   map[string]nodeHistory
	unread   bool // pods or Nodes are denied and were never read, so it is not known which reports are left over
}

func (s *healthSync) requeue(at time.Time) {
	if at.After(s.now) && at.Before(s.again) {
		s.again = at
	}
}

// judge evaluates the target, and writes the result. judged is false while too little is known for that:
// then only what prevents or delays the delivery is written.
func (s *healthSync) judge(ctx context.Context, in *rollup.Input) (v delivery.Verdict, judged bool) {
	t := s.target
	if t.OtherInstallation {
		s.metrics.set(t.Name, nil, s.now)
		return delivery.Verdict{Done: true}, true
	}
	resource := t.Sources.Destination()
	if s.resource = resource; resource == nil {
		judged = t.Sources.Resource.HasSynced()
	} else {
		in.Reports = s.seen.Observe(s.now, s.showing, s.unanswered, resource.Reports)
		var due time.Time
		v.Silent, due = s.seen.Silences(s.now)
		s.requeue(due)
		in.Previous, in.Off, in.Agreement = resource.Conditions, t.Off, s.agreement
		if s.shown != "" && !ssa.AtLeast(resource.Version, s.shown) { // etcd was restored
			s.written = ""
		}
		if s.shown != resource.Version { // the watch works
			s.showing = s.now
		}
		s.showing = rollup.Latest(s.showing, s.watching.at(t.Sources.Resource.Relisted()))
		in.Behind = s.now.Sub(s.showing)
		if s.shown = resource.Version; !ssa.AtLeast(resource.Version, s.written) {
			in.Previous = s.conditions
		}
		judged = t.Off || s.observe(in)
	}
	in.Unobserved, in.Owner = resource == nil || !judged, s.owner
	result := rollup.Evaluate(in)
	s.requeue(result.Deadline)
	v.Degraded, v.Reporting = result.Conditions[contract.PluginsDegraded], result.Conditions[contract.HealthReporting]
	s.removed = s.removed && t.Off && t.Clean
	if t.Off { // when KMS is on again, all nodes have time for their first report
		s.attendance, s.agreement = nil, rollup.Agreement{}
	} else if judged {
		s.agreement = result.Agreement
	}
	result.Rows = slices.DeleteFunc(result.Rows, func(r rollup.Row) bool { return !in.Expects(r.Node) })
	s.relist(result)
	if judged && !in.Off && !in.Unobserved {
		s.metrics.set(t.Name, result, s.now)
	} else if judged {
		s.metrics.set(t.Name, nil, s.now)
	}
	if v.Done = judged && t.Clean; resource != nil {
		v.Done = s.act(ctx, in, result, judged)
	}
	return v, judged
}

// relist reads the resource again before reports count as stale, and at most once a minute while they do. The watch
// may miss changes, if its API server disappeared without closing it, or may show what etcd lost in a restore.
func (s *healthSync) relist(result *rollup.Result) {
	resource := s.target.Sources.Resource
	longAgo := s.now.Sub(s.watching.at(resource.Relisted())) > time.Minute
	if slices.ContainsFunc(result.Rows, func(r rollup.Row) bool {
		silent := !r.Changed.IsZero() && !s.now.Before(r.FreshUntil())
		return silent && (r.State != rollup.Stale || longAgo)
	}) {
		resource.Relist()
	}
}

// act carries out a result: it removes leftovers, and writes the conditions. done means that nothing is left.
func (s *healthSync) act(ctx context.Context, in *rollup.Input, result *rollup.Result, judged bool) (done bool) {
	t := s.target
	if t.Off && t.Clean {
		result = &rollup.Result{}
	}
	var left []string
	if judged && !s.unread && (t.Off || !t.Unmanaged) {
		left = s.leftovers(in, result)
	}
	wait := s.Queue.Left(t.Name)
	switch {
	case t.Off && t.Unmanaged:
	case wait > 0: // a failed write is retried then, whatever changes meanwhile
		s.requeue(s.now.Add(wait))
	default:
		// A removal is a patch of the version that was read, so it comes before the write.
		err := s.remove(ctx, left)
		if len(result.Conditions) > 0 {
			err = errors.Join(err, s.write(ctx, in.Previous, result))
		}
		if s.Queue.Observe(t.Name, err); err != nil {
			s.metrics.errors.WithLabelValues(t.Name).Inc()
		}
	}
	return t.Off && t.Clean && (s.removed || len(left) == 0)
}
