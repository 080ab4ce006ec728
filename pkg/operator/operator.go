// Package operator brings a reporter to every KMS plugin of a cluster's API
// servers, and takes them back.
//
// It works in passes. A pass looks at what the watches have told, decides for
// each target what there should be (package target), and writes what differs.
// Nothing but a few facts in an annotation is remembered, so an operator that is
// killed at any moment goes on from what there is.
package operator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/clusteroperator"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/pkg/operator/pass"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/rollupcontroller"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
	"github.com/kms-health/kms-health/pkg/operator/watch"
)

const (
	// settle is how long a pass waits for more of the same change.
	settle = 20 * time.Millisecond
	// resync is how often a pass is made without any change, for what no watch
	// tells.
	resync = time.Minute
	// A pass that fails is made again after these.
	firstRetry, lastRetry = 500 * time.Millisecond, 10 * time.Second
)

// Options of an Operator.
type Options struct {
	Client      dynamic.Interface
	Credentials *credentials.Manager
	// Approve says that the operator may approve its own certificate requests.
	Approve bool
	// CA returns the certificates, PEM, that API servers are known by.
	CA func() ([]byte, error)
	// ConfigFile is the path of an OperatorConfiguration.
	ConfigFile string
	// Namespace is the operator's own, where its reporters run too.
	Namespace string
	// Image is the reporter's where the file names none.
	Image string
	// OpenShift says whether this is OpenShift. Nil: look.
	OpenShift *bool
	// KubeletRoot is the kubelets' folder on the nodes.
	KubeletRoot string
	// Event tells of a change, of the target that it names.
	Event    func(target, reason, message string)
	Registry prometheus.Registerer
	Clock    clock.Clock
	// Version is the operator's; Inertia, how long something must be bad before its
	// ClusterOperator says so.
	Version string
	Inertia time.Duration
}

// Operator keeps the reporters of all targets.
type Operator struct {
	Options
	metrics  *metrics
	executor *target.Executor
	rollups  *rollupcontroller.Controller
	itself   *clusteroperator.Controller
	loop     *pass.Loop
	// switching says that a target waits for reports, so they are worth a pass.
	switching atomic.Bool

	sources  *watch.Set
	config   atomic.Pointer[v1alpha1.OperatorConfiguration]
	problems sync.Map // what: message, of configuration and profile
	serving  atomic.Pointer[tlsprofile.Settings]

	mu          sync.Mutex
	published   []rollupcontroller.Target
	deliveries  map[string]target.Status // by target
	onOpenShift bool

	// What follows is of Run's goroutine alone.
	view      *watch.View
	tls       *tlsprofile.Settings
	leftOut   []string
	roles     map[string]roleRead // by which Secrets are read
	ignored   map[string]string   // what was told of providers that are not probed, by target
	revisions map[string]revisionRead
	retries   *pass.Retries
	known     map[string]v1alpha1.Target // those of the configuration, and of earlier ones
	again     time.Duration              // how soon to look again
}

// New makes an Operator.
func New(o Options) *Operator {
	op := &Operator{
		Options: o, loop: pass.NewLoop(o.Clock, settle),
		roles: map[string]roleRead{}, ignored: map[string]string{}, revisions: map[string]revisionRead{},
		retries: pass.NewRetries(o.Clock, firstRetry, lastRetry), known: map[string]v1alpha1.Target{},
		sources: watch.NewSet(o.Client), deliveries: map[string]target.Status{},
	}
	op.metrics = newMetrics(o.Registry)
	op.view = op.sources.View(op.Wake)
	tell := func(target, reason, message string) {
		op.metrics.changes.WithLabelValues(target, reason).Inc()
		klog.InfoS("Changed", "target", target, "reason", reason, "what", message)
		o.Event(target, reason, message)
	}
	op.executor = &target.Executor{
		Client: o.Client, Applier: apply.New(o.Client, render.Manager, o.Clock),
		Credentials: o.Credentials, Approve: o.Approve, Clock: o.Clock, Event: tell,
	}
	op.itself = clusteroperator.New(clusteroperator.Options{
		Client: o.Client, Sources: op.sources, Clock: o.Clock, Version: o.Version, Inertia: o.Inertia, Look: op.state,
	})
	op.rollups = rollupcontroller.New(rollupcontroller.Options{
		Client: o.Client, Sources: op.sources, Namespace: o.Namespace, Event: tell, Registry: o.Registry, Clock: o.Clock,
		Changed: func() { op.itself.Wake(); op.Wake() },
	})
	return op
}

// Wake asks for a pass.
func (o *Operator) Wake() { o.loop.Wake() }

// wakeOnceAndForReports asks for a pass when a resource is first known, and then
// only while its reports are waited for: they come all the time.
func (o *Operator) wakeOnceAndForReports() func() {
	var once sync.Once
	return func() {
		once.Do(o.Wake)
		if o.switching.Load() {
			o.Wake()
		}
	}
}

// lookAgain asks for a pass after a while.
func (o *Operator) lookAgain(after time.Duration) {
	if o.again == 0 || after < o.again {
		o.again = after
	}
}

// Run makes passes until ctx ends. One replica at a time may run.
func (o *Operator) Run(ctx context.Context) {
	watches, end := context.WithCancel(ctx)
	defer o.sources.Wait()
	defer end()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { o.rollups.Run(ctx) })
	beside.Go(func() { o.itself.Run(ctx) })
	o.loop.Run(ctx, func(ctx context.Context) time.Duration {
		if config := o.config.Load(); config != nil {
			return o.pass(ctx, watches, config)
		}
		return resync
	})
}

// pass looks at everything once. It returns how soon to look again.
func (o *Operator) pass(ctx, watches context.Context, config *v1alpha1.OperatorConfiguration) time.Duration {
	o.again = 0
	o.view.Begin()
	defer o.view.End()
	defer o.metrics.passes.Inc()
	o.lookAgain(resync)
	c, err := o.observeCluster(watches)
	if err != nil {
		o.failed("", err)
	}
	if err != nil || !c.known {
		if err == nil && c.roles.Known() { // enough to roll up by what was known before
			var all []*job
			for _, t := range o.targets(c, config) {
				all = append(all, &job{aTarget: t})
			}
			o.publish(c, config, all)
		}
		return o.again
	}
	var all []*job
	for _, t := range o.targets(c, config) {
		if config.ManagementState == v1alpha1.Unmanaged {
			all = append(all, &job{aTarget: t})
			continue
		}
		all = append(all, o.plan(watches, c, config, t))
	}
	o.publish(c, config, all)
	if config.ManagementState == v1alpha1.Unmanaged {
		return o.again
	}
	// The policy comes before the rights that it bounds, and goes after them.
	wanted, left, switching := false, false, false
	for _, j := range all {
		wanted = wanted || j.plan != nil && j.plan.Anchor != nil
		gone := j.plan != nil && j.plan.Gone && len(j.plan.Delete) == 0
		if left = left || !gone; gone && j.world.Going {
			delete(o.known, j.Name)
		}
		switching = switching || j.plan != nil && j.plan.Status.Reason == target.ReasonProgressing
	}
	o.switching.Store(switching)
	switch {
	case wanted:
		err = o.keepPolicy(ctx, c)
	case !left:
		err = o.dropPolicy(ctx, c)
	}
	if err != nil {
		o.failed("", err)
		return o.again
	}
	for _, j := range all {
		if j.plan != nil && !j.held {
			o.do(ctx, j)
		}
	}
	return o.again
}
