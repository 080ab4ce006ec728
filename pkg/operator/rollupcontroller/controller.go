// Package rollupcontroller keeps the roll-up of every target on its operator
// resource: what package rollup makes of the reports there, of the target's pods,
// and of their nodes.
//
// It works beside the delivery of reporters and waits for nothing of it, so that
// it goes on while Secrets and ConfigMaps cannot be read: it looks at operator
// resources, Nodes and Pods alone. Of the delivery it takes, when there is news,
// which plugins each pod has.
package rollupcontroller

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/pass"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/operator/watch"
	"github.com/kms-health/kms-health/pkg/rollup"
)

const (
	// settle is how long a pass waits for more of the same change: reporters write
	// one by one.
	settle = 20 * time.Millisecond
	// resync is how often a pass is made without any change.
	resync = 5 * time.Minute
	// A write that fails is tried again after these.
	firstRetry, lastRetry = 250 * time.Millisecond, 5 * time.Second
	// afterOutage is for how long silence tells nothing after the API server was away:
	// nobody could report, and kubelets, which ask it ever less often while it is away,
	// for up to half a minute, know of their pods what was before. Until they do, a
	// pod that was replaced meanwhile looks like one whose reporter has fallen silent.
	afterOutage    = time.Minute
	requestTimeout = 10 * time.Second
)

// Options of a Controller.
type Options struct {
	Client  dynamic.Interface
	Sources *watch.Set
	// Namespace is where reporters run that are pods of their own.
	Namespace string
	// Event tells of a change, of the target that it names.
	Event    func(target, reason, message string)
	Registry prometheus.Registerer
	Clock    clock.Clock
	// Changed is called after a pass that came to something else than the one
	// before. It must not block.
	Changed func()
}

// Target is a target, with what its delivery knows.
type Target struct {
	v1alpha1.Target
	// State has the plugin sets, as last known; Known says that they are.
	State target.State
	Known bool
	// Pending are revisions whose plugin set will be known in a moment.
	Pending map[string]bool
	// Off says that nobody is to report any more; Clean, that nobody of ours can.
	Off, Clean bool
	// Mute says that another target has the resource now.
	Mute bool
	// Unmanaged says that no report is to be removed.
	Unmanaged bool
	// NamespaceMissing says that there is no place for pods.
	NamespaceMissing bool
	// Optional are the conditions wanted beyond the usual ones.
	Optional []string
	// Tool is what admins of this cluster type: oc or kubectl.
	Tool string
}

// Verdict is what a target came to.
type Verdict struct {
	// Result is nil while too little is known to judge, and where KMS is off.
	Result *rollup.Result
	// Done says that nothing of a target is left on its resource, and nobody of ours
	// can write there.
	Done bool
}

// Controller keeps the roll-ups.
type Controller struct {
	Options
	loop    *pass.Loop
	metrics *metrics

	mu       sync.Mutex
	targets  []Target
	verdicts map[string]Verdict

	// What follows is of Run's goroutine alone.
	view    *watch.View
	again   time.Time
	written map[string]written                // by target
	removed map[string]map[rollup.Ref]removal // by target
	retries *pass.Retries
	deaf    map[string]time.Time   // until when silence tells nothing, by target; zero: it is away
	pods    map[string]*corev1.Pod // of ours, by UID, as this pass decoded them
	before  map[string]*corev1.Pod // the same of the pass before
}

// New makes a Controller.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, loop: pass.NewLoop(o.Clock, settle), verdicts: map[string]Verdict{},
		written: map[string]written{}, removed: map[string]map[rollup.Ref]removal{}, retries: pass.NewRetries(o.Clock, firstRetry, lastRetry),
		deaf: map[string]time.Time{},
	}
	c.metrics = newMetrics(o.Registry)
	c.view = o.Sources.View(c.loop.Wake)
	return c
}

// Set says which targets there are. Until it was called, nothing is done.
func (c *Controller) Set(targets []Target) {
	c.mu.Lock()
	same := reflect.DeepEqual(c.targets, targets)
	c.targets = targets
	c.mu.Unlock()
	if !same {
		c.loop.Wake()
	}
}

// Verdict returns what a target last came to, and whether it was judged yet.
func (c *Controller) Verdict(name string) (Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.verdicts[name]
	return v, ok
}

// Run makes passes until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx, c.pass) }

// pass judges every target once, and returns how soon to look again.
func (c *Controller) pass(ctx context.Context) time.Duration {
	c.view.Begin()
	defer c.view.End()
	c.again = c.Clock.Now().Add(resync)
	c.before, c.pods = c.pods, map[string]*corev1.Pod{}
	c.mu.Lock()
	targets := c.targets
	c.mu.Unlock()
	changed := false
	verdicts := map[string]Verdict{}
	for i := range targets {
		t := &targets[i]
		before, had := c.Verdict(t.Name)
		verdict, judged := c.judge(ctx, t)
		if !judged {
			if had { // too little is known for another
				verdicts[t.Name] = before
			}
			continue
		}
		verdicts[t.Name] = verdict
		c.metrics.set(t.Name, verdict.Result)
		changed = changed || !had || before.Done != verdict.Done || !sameConditions(before.Result, verdict.Result)
	}
	c.mu.Lock()
	for name := range c.verdicts {
		if !slices.ContainsFunc(targets, func(t Target) bool { return t.Name == name }) {
			c.metrics.set(name, nil)
			delete(c.removed, name)
			delete(c.written, name)
			c.retries.Done(name)
			delete(c.deaf, name)
			changed = true
		}
	}
	c.verdicts = verdicts
	c.mu.Unlock()
	if changed {
		c.Changed()
	}
	return max(0, c.again.Sub(c.Clock.Now()))
}

func sameConditions(a, b *rollup.Result) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.Conditions, b.Conditions)
}

// judge brings the roll-up of one target about. judged is false while a source
// that it stands on has not told yet.
func (c *Controller) judge(ctx context.Context, t *Target) (v Verdict, judged bool) {
	if t.Mute {
		return Verdict{Done: true}, true
	}
	resources := watch.Follow(ctx, c.view, watch.Selection{Resource: target.ResourceOf(t.Resource), Name: "cluster"}, rollup.Read, nil)
	now := c.Clock.Now()
	outage := c.outage(t.Name, resources.Err(), now)
	resource, exists := resources.Get("", "cluster")
	if !resources.Known() {
		return Verdict{}, false
	}
	if !exists {
		return Verdict{Done: t.Clean}, true
	}
	if t.Off {
		return c.takeOff(ctx, t, resource, now), true
	}
	if !t.Known && len(resource.Reports) == 0 {
		return Verdict{}, false
	}
	nodes, made, known := c.nodes(ctx, t, resource, now)
	if !known {
		return Verdict{}, false
	}
	in := rollup.Input{
		Now: now, Reports: resource.Reports, Nodes: nodes, WriteKey: writeKey(&t.State),
		Previous: c.standing(t.Name, resource, now), Optional: t.Optional,
	}
	in.NoWriteKey = t.Known && in.WriteKey == ""
	v.Result = rollup.Evaluate(&in)
	c.lookAgain(v.Result.Deadline)
	if outage && restsOnSilence(v.Result) {
		return Verdict{}, false
	}
	if c.waits(t.Name) {
		return v, true
	}
	// A removal is of the very version that was read, so it comes before our write.
	var cleaned error
	if !t.Unmanaged {
		cleaned = c.clean(ctx, t, resource, &rollup.Cleaning{Now: now, Reports: resource.Reports, Nodes: nodes, Made: made})
	}
	c.ended(t.Name, errors.Join(cleaned, c.write(ctx, t, &in, v.Result)))
	return v, true
}

// takeOff takes the roll-up and the reports of a target that is off from its
// resource.
func (c *Controller) takeOff(ctx context.Context, t *Target, resource *rollup.Resource, now time.Time) (v Verdict) {
	standing := c.standing(t.Name, resource, now)
	none := &rollup.Result{}
	came := c.removed[t.Name]
	reports := slices.ContainsFunc(resource.Reports, func(r rollup.Report) bool { return r.Ours && !came[r.Ref()].back })
	v.Done = t.Clean && !reports && none.Same(standing)
	if t.Unmanaged || c.waits(t.Name) {
		return v
	}
	var cleaned error
	if t.Clean {
		cleaned = c.clean(ctx, t, resource, &rollup.Cleaning{Now: now, Reports: resource.Reports, Off: true})
	}
	c.ended(t.Name, errors.Join(cleaned, c.write(ctx, t, &rollup.Input{Now: now, Previous: standing}, none)))
	return v
}

// writeKey is the keyID of the plugin that encrypts what is written now.
func writeKey(s *target.State) string {
	for _, p := range s.Live {
		if p.Role == v1alpha1.RoleWrite {
			return p.KeyID
		}
	}
	return ""
}

// decode makes a typed pod of one of ours, once for each of its versions.
func (c *Controller) decode(o *unstructured.Unstructured) *corev1.Pod {
	key := string(o.GetUID())
	if pod := c.before[key]; pod != nil && pod.ResourceVersion == o.GetResourceVersion() {
		c.pods[key] = pod
		return pod
	}
	pod := target.TypedPod(o)
	c.pods[key] = pod
	return pod
}
