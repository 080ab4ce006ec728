// Package status is the only writer of conditions.
//
// The Controller keeps the conditions of each API server on its operator resource: the result
// of pkg/rollup for the reports there, the API server's pods, and their nodes. It works while
// Secrets and ConfigMaps cannot be read: it reads only operator resources, Nodes and Pods. The
// delivery of reporters (package apiserver) publishes values to it whenever they change.
// ClusterOperator reports the whole as `oc get clusteroperators` shows it.
package status

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operator/retry"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const (
	settle                = 20 * time.Millisecond // a sync waits for related changes: reporters write one after another
	resync                = 5 * time.Minute
	firstRetry, lastRetry = 250 * time.Millisecond, 5 * time.Second
	// afterOutage is for how long after an outage of the API server missing reports are excused: no reporter
	// could write, and until kubelets, which back off to every half minute, have written the state of their
	// pods, one that was replaced looks like one whose reporter stopped.
	afterOutage = time.Minute
	workers     = 4
)

// Options of a Controller.
type Options struct {
	Client    dynamic.Interface
	Namespace string // of reporters that are pods of their own
	Event     func(target, eventType, reason, message string)
	Registry  prometheus.Registerer
	Clock     clock.WithTicker // for timers
	Now       func() time.Time // by the API server's clock
	// Changed is called when the verdict of a target has changed; Gone, when nothing of
	// it is left on its resource. They must not block.
	Changed func()
	Gone    func(target string)
}

// Verdict is the result of a target's last sync.
type Verdict struct {
	// Degraded is KMSPluginsDegraded: as it was evaluated, else as it stands on the resource. The zero
	// one: there is none.
	Degraded operatorcr.Condition
	// Reporting is KMSHealthReporting, also where Result is nil, and where it cannot be written:
	// without an operator resource. The zero one is not known, or there is none.
	Reporting operatorcr.Condition
	// Done means that nothing of a target is left on its resource, and no own reporter
	// can write there.
	Done   bool
	Judged bool // at least once
}

// Controller keeps the roll-ups.
type Controller struct {
	Options
	metrics *metrics
	queue   retry.Queue // names of targets
	retry   *retry.Backoff

	mu      sync.Mutex
	targets map[string]*entry
}

// entry is the state of a target between its syncs. Its fields are used by the one worker
// that syncs it, except those guarded by the Controller's mu.
type entry struct {
	removed map[string]time.Time // when a report was removed, by node
	// wrote are the conditions that were written last, in the resource's version written. They count
	// until the watch shows that version: reporters write in between.
	wrote        map[string]operatorcr.Condition
	written      string
	replaced     rollup.Replacements
	outage       bool      // the API server is unreachable
	quietUntil   time.Time // missing reports are excused after that
	absent       time.Time // since when no API server has a pod; zero: the last sync saw one, or saw nothing
	began        time.Time // when the target was first seen; since then these two are remembered
	expectations rollup.Expectations
	attendance   map[string]attendance // by node

	target  apiserver.Published // under mu
	stands  time.Time           // under mu: since when its Status is as it is
	verdict Verdict             // under mu
}

// New makes a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options: o, targets: map[string]*entry{}, metrics: newMetrics(o.Registry), queue: retry.NewQueue(o.Clock),
		retry: retry.New(o.Clock, firstRetry, lastRetry, "write the roll-up", "apiServer"),
	}
}

// Set sets the published state of a target. Before that, the target is not synced.
func (c *Controller) Set(t apiserver.Published) {
	c.mu.Lock()
	e := c.targets[t.Name]
	if e == nil {
		e = &entry{removed: map[string]time.Time{}, replaced: rollup.Replacements{}, expectations: rollup.Expectations{}}
		c.targets[t.Name] = e
	}
	was, is := e.target, t // their sources are the same, or others: what they hold is no change
	was.Sources, is.Sources = nil, nil
	same := e.target.Sources == t.Sources && reflect.DeepEqual(was, is)
	if e.target.Status != t.Status {
		e.stands = c.Now()
	}
	e.target = t
	c.mu.Unlock()
	if !same {
		c.Wake(t.Name)
	}
}

// Remove removes a target.
func (c *Controller) Remove(name string) {
	c.mu.Lock()
	delete(c.targets, name)
	c.mu.Unlock()
	c.metrics.set(name, nil)
	c.retry.Forget(name)
	c.Changed()
}

// Wake syncs a target.
func (c *Controller) Wake(name string) { c.queue.AddAfter(name, settle) }

// Verdict returns the last verdict of a target.
func (c *Controller) Verdict(name string) (v Verdict) {
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
	c.queue.Work(ctx, workers, func(ctx context.Context, name string) time.Duration {
		at := c.sync(ctx, name)
		if at.IsZero() {
			return 0
		}
		return max(1, at.Sub(c.Now()))
	})
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
	d := rollup.Delivery{Reason: string(t.Status.Reason), Message: t.Status.Message, Since: e.stands}
	c.mu.Unlock()
	s := &syncing{Controller: c, entry: e, target: &t, delivery: d, now: c.Now()}
	s.again = s.now.Add(resync)
	verdict, judged := s.judge(ctx)
	if judged {
		c.metrics.set(name, s.result)
	} else { // too little is known for a new one
		verdict.Done, verdict.Degraded = before.Done, s.standing
	}
	verdict.Judged = judged || before.Judged
	c.mu.Lock()
	e.verdict = verdict
	c.mu.Unlock()
	if before != verdict {
		c.Changed()
	}
	if verdict.Done && !before.Done {
		c.Gone(name)
	}
	return s.again
}

type syncing struct {
	*Controller
	*entry
	target   *apiserver.Published
	delivery rollup.Delivery
	now      time.Time
	again    time.Time            // when to sync again at the latest
	standing operatorcr.Condition // KMSPluginsDegraded before
	result   *rollup.Result       // nil while too little is known, and if KMS is off
}

func (s *syncing) requeue(at time.Time) {
	if !at.IsZero() && at.Before(s.again) {
		s.again = at
	}
}

// judge evaluates the target. judged is false while a required source is not known.
func (s *syncing) judge(ctx context.Context) (v Verdict, judged bool) {
	t := s.target
	absent := s.absent
	s.absent = time.Time{}
	if t.OtherInstallation {
		return Verdict{Done: true}, true
	}
	outage := s.inOutage(t.Sources.Resource.Err())
	in := rollup.Input{Now: s.now, Began: s.began, Delivery: s.delivery}
	resource := t.Sources.Destination()
	if resource == nil {
		known := t.Sources.Resource.Known()
		return Verdict{Reporting: s.ofDelivery(&in).Condition(contract.HealthReporting), Done: known && t.Clean}, known
	}
	in.Reports, in.Previous = resource.Reports, resource.Conditions
	if !apiserver.Shows(resource.Version, s.written) {
		in.Previous = s.wrote
	}
	s.standing = in.Previous[contract.PluginsDegraded]
	if t.Off {
		return s.removeAll(ctx, resource, &in), true
	}
	if !s.observe(&in, resource, absent) {
		return Verdict{Reporting: s.writeDelivery(ctx, &in)}, false
	}
	s.result = rollup.Evaluate(&in)
	s.requeue(s.result.Deadline)
	v.Degraded, v.Reporting = s.result.Condition(contract.PluginsDegraded), s.result.Condition(contract.HealthReporting)
	if outage && restsOnSilence(s.result) {
		return Verdict{Reporting: v.Reporting}, false
	}
	for _, n := range in.Nodes { // its report is expected again, and is not one that came back
		if len(n.Keys) > 0 {
			delete(s.removed, n.Name)
		}
	}
	// A removal applies to what was read, so it comes before the write.
	var cleaned error
	if !t.Unmanaged {
		cleaned = s.clean(ctx, resource, &rollup.Cleaning{Nodes: in.Nodes, Node: s.created})
	}
	s.finish(errors.Join(cleaned, s.write(ctx, in.Previous, s.result)))
	return v, true
}

func (s *syncing) ofDelivery(in *rollup.Input) *rollup.Result {
	result := rollup.OfDelivery(in)
	s.requeue(result.Deadline)
	return result
}

// writeDelivery writes what prevents or delays the delivery while no node can be evaluated. The
// other conditions stay as they are.
func (s *syncing) writeDelivery(ctx context.Context, in *rollup.Input) operatorcr.Condition {
	result := s.ofDelivery(in)
	c := result.Condition(contract.HealthReporting)
	if c.Type == "" {
		return c
	}
	for _, t := range rollup.Types {
		if was, is := in.Previous[t]; is && t != c.Type {
			result.Conditions = append(result.Conditions, was)
		}
	}
	s.finish(s.write(ctx, in.Previous, result))
	return c
}

// removeAll removes the roll-up and the reports of a target that is off. Until its reporters are
// removed, the condition of their delivery stays.
func (s *syncing) removeAll(ctx context.Context, resource *operatorcr.Status, in *rollup.Input) (v Verdict) {
	result := s.ofDelivery(in)
	v.Reporting = result.Condition(contract.HealthReporting)
	if s.target.Clean {
		result = &rollup.Result{}
	}
	v.Done = s.target.Clean && result.Same(in.Previous) &&
		!slices.ContainsFunc(resource.Reports, func(r operatorcr.Report) bool { return r.Ours && s.removed[r.Node].IsZero() })
	if s.target.Unmanaged {
		return v
	}
	var cleaned error
	if s.target.Clean {
		cleaned = s.clean(ctx, resource, &rollup.Cleaning{Off: true})
	}
	s.finish(errors.Join(cleaned, s.write(ctx, in.Previous, result)))
	return v
}

// inOutage reports whether the API server is unreachable, or was until recently.
func (s *syncing) inOutage(err error) bool {
	switch {
	case err != nil:
		s.outage = true // its end wakes the controller
		return true
	case s.outage:
		s.outage, s.quietUntil = false, s.now.Add(afterOutage)
	}
	if !s.now.Before(s.quietUntil) {
		return false
	}
	s.requeue(s.quietUntil)
	return true
}

// restsOnSilence reports whether reports that are stale or missing change a verdict. A plugin
// that is known to be unhealthy is still reported.
func restsOnSilence(r *rollup.Result) bool {
	return r.Condition(contract.PluginsDegraded).Status != operatorcr.True &&
		slices.ContainsFunc(r.Rows, func(row rollup.Row) bool { return row.Silent() })
}

// finish keeps the outcome of the writes, and schedules a retry of failed ones.
func (s *syncing) finish(err error) {
	delay := s.retry.Observe(s.target.Name, err)
	if delay == 0 {
		return
	}
	s.requeue(s.now.Add(delay))
	s.metrics.errors.WithLabelValues(s.target.Name).Inc()
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // no response
		s.quietUntil = s.now.Add(afterOutage)
	}
}

// configuredKey is the write key of the current configuration, and whether it is known to have
// none. A set that was recorded, and cannot be read any more, may have been replaced, and a
// provider that cannot be probed may be the one that encrypts.
func configuredKey(t *apiserver.Published) (key string, none bool) {
	if !t.LiveKnown {
		return "", false
	}
	key = apiserver.WriteKey(t.State.Live)
	return key, key == "" && t.State.NotProbed == ""
}
