// Package pluginhealthcontroller writes the conditions of the roll-up to the operator resource of each API server: the
// result of pkg/rollup for the reports there, the API server's pods, and their nodes.
//
// It works while Secrets and ConfigMaps cannot be read: it reads only operator resources, Nodes and Pods. What is
// known of the delivery of the reporters comes to it as values of package delivery.
package pluginhealthcontroller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const (
	resync = 5 * time.Minute
	// afterOutage is for how long after an API server last did not answer missing reports are excused: for
	// a minute after its return, since no reporter could write, and until kubelets, which back off to every half
	// minute, have written the state of their pods, one that was replaced looks like one whose reporter stopped.
	afterOutage = time.Minute + outageSync
	outageSync  = 10 * time.Second // how often that is observed, at least
	// afterDenial is the same after a right was missing: reporters could write, and the next list comes within 5 s.
	afterDenial = outageSync + 5*time.Second
	workers     = 4
)

// Options of a Controller.
type Options struct {
	Client   dynamic.Interface
	Event    func(target, eventType, reason, message string)
	Registry prometheus.Registerer
	Clock    clock.WithTicker // the local one, for timers
	Now      func() time.Time // by the API server's clock
	// Unanswered is when the API server last did not answer a request, by the local clock; zero: it always did.
	Unanswered func() time.Time
	Queue      *syncqueue.Queue // names of API servers
	// Reporters gets the name of an API server of which nothing is left on its resource, and ClusterOperator its own
	// one when a verdict has changed.
	Reporters, ClusterOperator informers.Queue
}

// Controller keeps the roll-ups.
type Controller struct {
	Options
	metrics *metrics

	mu      sync.Mutex
	targets map[string]*healthState
}

// healthState is the state of a target between its syncs. Its fields are used by the one worker
// that syncs it, except those guarded by the Controller's mu.
type healthState struct {
	// conditions are those that were applied last, and written is the version of the resource with them. They are
	// the current ones until the watch shows that version: reporters write in between.
	conditions map[string]operatorstatus.Condition
	written    string
	cleaned    bool                   // the reports were removed since the target is off
	quietUntil time.Time              // missing reports are excused until then, by the local clock
	began      time.Time              // when the target was first seen
	attendance map[string]nodeHistory // by node, since then; nil: none was observed yet

	target  delivery.Snapshot // under mu
	stands  time.Time         // under mu: since when its Status is as it is
	verdict delivery.Verdict  // under mu
}

// New makes a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options: o, targets: map[string]*healthState{}, metrics: newMetrics(o.Registry),
	}
}

// Set sets the published state of a target. Before that, the target is not synced.
func (c *Controller) Set(t delivery.Snapshot) {
	c.mu.Lock()
	e := c.targets[t.Name]
	if e == nil {
		e = &healthState{began: c.Now()}
		c.targets[t.Name] = e
	}
	if e.target.Status != t.Status {
		e.stands = c.Now()
	}
	e.target = t
	e.verdict.Done = e.verdict.Done && over(&t)
	c.mu.Unlock()
	c.Queue.Enqueue(t.Name)
}

// over reports whether nothing more is written for an API server. One that is enabled again must not stay Done
// because of an earlier removal.
func over(t *delivery.Snapshot) bool { return t.Off || t.OtherInstallation }

// Remove removes a target.
func (c *Controller) Remove(name string) {
	c.mu.Lock()
	delete(c.targets, name)
	c.mu.Unlock()
	c.metrics.set(name, nil)
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

// IsDone reports whether nothing of a target is left on its resource.
func (c *Controller) IsDone(name string) bool { return c.Verdict(name).Done }

// Run syncs targets until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) {
	c.Queue.Work(ctx, workers, func(ctx context.Context, name string) time.Duration {
		if name == syncqueue.All {
			c.enqueueAll()
			return 0
		}
		at := c.sync(ctx, name)
		if at.IsZero() {
			return 0
		}
		return max(1, at.Sub(c.Now()))
	})
}

func (c *Controller) enqueueAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.targets {
		c.Queue.Add(name)
	}
}

// sync updates the roll-up of one target. It returns when to sync it again at the
// latest, by the API server's clock; zero: it was removed.
func (c *Controller) sync(ctx context.Context, name string) time.Time {
	c.mu.Lock()
	e := c.targets[name]
	if e == nil {
		c.mu.Unlock()
		return time.Time{}
	}
	t, before := e.target, e.verdict
	in := rollup.Input{Began: e.began, Now: c.Now(),
		Delivery: rollup.Delivery{Reason: string(t.Status.Reason), Message: t.Status.Message, Since: e.stands}}
	c.mu.Unlock()
	s := &healthSync{Controller: c, healthState: e, target: &t, now: in.Now, again: in.Now.Add(resync)}
	s.node = func(name string) (informers.Node, bool) { return t.Sources.Cluster.Nodes.Get("", name) }
	verdict, judged := s.judge(ctx, &in)
	if !judged { // too little is known for a new one
		verdict.Done = before.Done
	}
	verdict.Judged = judged || before.Judged
	c.mu.Lock()
	verdict.Done = verdict.Done && over(&e.target)
	e.verdict = verdict
	c.mu.Unlock()
	if before != verdict {
		c.ClusterOperator.Enqueue(contract.ClusterOperator)
	}
	if verdict.Done && !before.Done {
		c.Reporters.Enqueue(name)
	}
	return s.again
}

type healthSync struct {
	*Controller
	*healthState
	target *delivery.Snapshot
	node   func(name string) (n informers.Node, exists bool)
	now    time.Time
	again  time.Time // when to sync again at the latest
}

func (s *healthSync) requeue(at time.Time) {
	if !at.IsZero() && at.Before(s.again) {
		s.again = at
	}
}

// judge evaluates the target, and writes the result. judged is false while too little is known for that:
// then only what prevents or delays the delivery is written.
func (s *healthSync) judge(ctx context.Context, in *rollup.Input) (v delivery.Verdict, judged bool) {
	t := s.target
	if t.OtherInstallation {
		s.metrics.set(t.Name, nil)
		return delivery.Verdict{Done: true}, true
	}
	s.excuse()
	resource := t.Sources.Destination()
	if resource == nil {
		judged = t.Sources.Resource.HasSynced()
	} else {
		in.Reports, in.Previous, in.Off = resource.Reports, resource.Conditions, t.Off
		if !ssa.AtLeast(resource.Version, s.written) {
			in.Previous = s.conditions
		}
		judged = t.Off || s.observe(in, resource)
	}
	in.Unobserved = resource == nil || !judged
	result := rollup.Evaluate(in)
	s.requeue(result.Deadline)
	v.Degraded, v.Reporting = result.Conditions[contract.PluginsDegraded], result.Conditions[contract.HealthReporting]
	left, standing := s.quietUntil.Sub(s.Clock.Now()), in.Previous[contract.PluginsDegraded]
	excused := left > 0 && slices.ContainsFunc(result.Rows, rollup.Row.Silent)
	// A plugin that is known to be unhealthy is reported all the same, and so is that a silence has ended.
	ended := v.Degraded.Status == operatorstatus.False && standing.Status == operatorstatus.Unknown
	if judged && excused && v.Degraded.Status != operatorstatus.True && !ended {
		s.requeue(s.now.Add(left))
		v.Degraded = standing
		return v, false
	}
	s.cleaned = s.cleaned && t.Off
	if t.Off { // when it is on again, all nodes have time for their first report
		s.attendance = nil
	}
	if judged && !in.Off && !in.Unobserved {
		s.metrics.set(t.Name, result)
	} else if judged {
		s.metrics.set(t.Name, nil)
	}
	if resource == nil {
		v.Done = judged && t.Clean
		return v, judged
	}
	if t.Off && t.Clean {
		left := slices.ContainsFunc(resource.Reports, func(r operatorstatus.Report) bool { return r.Ours })
		result = &rollup.Result{}
		v.Done = result.Same(in.Previous) && (s.cleaned || !left)
	}
	if t.Off && t.Unmanaged {
		return v, true
	}
	if left := s.Queue.Left(t.Name); left > 0 { // a failed write is retried then, whatever changes meanwhile
		s.requeue(s.now.Add(left))
		return v, judged
	}
	// A removal applies to what was read, so it comes before the write.
	var cleaned error
	if judged && !t.Unmanaged && (t.Clean || !t.Off) {
		cleaned = s.clean(ctx, resource, in.Nodes)
	}
	s.finish(errors.Join(cleaned, s.write(ctx, in.Previous, result)))
	return v, judged
}

// excuse excuses missing reports, since the API server did not answer a moment ago, or the operator resource
// cannot be read. The watch alone does not show it: client-go takes an API server that drops packets for a silent one.
func (s *healthSync) excuse() {
	s.quietUntil = latest(s.quietUntil, s.Unanswered().Add(afterOutage))
	if err := s.target.Sources.Resource.Err(); err != nil {
		after := afterOutage
		if apierrors.IsForbidden(err) {
			after = afterDenial
		}
		s.excuseFor(after)
		s.requeue(s.now.Add(outageSync))
	}
}

func (s *healthSync) excuseFor(lasts time.Duration) {
	s.quietUntil = latest(s.quietUntil, s.Clock.Now().Add(lasts))
}

// finish keeps the outcome of the writes, and schedules a retry of failed ones.
func (s *healthSync) finish(err error) {
	s.Queue.Observe(s.target.Name, err)
	if err == nil {
		return
	}
	s.metrics.errors.WithLabelValues(s.target.Name).Inc()
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // no response in time
		s.excuseFor(afterOutage)
	}
}
