// Package reportercontroller decides which reporters one API server gets, and delivers them.
//
// One sync of an API server has four steps. observe creates a Snapshot of its state. ComputePlan, a pure function,
// turns it into a Plan: the objects that should exist, and those that nothing needs any more. reconcile writes, and
// returns a Result. report and publish pass that to the metrics, the ClusterOperator, an Event, and the roll-up.
package reportercontroller

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
)

const (
	resync  = time.Minute // how often a target is synced without a change: Secrets with credentials are not watched
	workers = 4           // how many targets are synced at a time
)

// CoreClient has the clients that create tokens and keep them in Secrets.
type CoreClient interface {
	typedcorev1.SecretsGetter
	typedcorev1.ServiceAccountsGetter
}

// Options of a Controller.
type Options struct {
	Client    dynamic.Interface
	Resources dynamic.Interface // see informers.ClusterOptions
	Core      CoreClient        // for the tokens of sidecars, in Secrets
	// CA returns the certificates, PEM, that API servers are verified with.
	CA func() ([]byte, error)
	// TLS returns the cluster's TLS settings, and why its profile is not active; false while they are not known.
	TLS func() (settings v1alpha1.ServingTLS, problem string, known bool)
	// Namespace is the operator's own. Reporters that are pods of their own run there, too.
	Namespace string
	OpenShift bool
	Server    string // the URL by which the operator reaches the API server
	// Event records an Event of a target.
	Event    func(target, eventType, reason, message string)
	Registry prometheus.Registerer
	Now      func() time.Time // the time by the API server's clock
	Config   interface {      // the configuration file
		Current() *v1alpha1.OperatorConfiguration
	}
	Health Health
	Queue  *syncqueue.Queue // names of API servers
	// HealthQueue is the queue of the roll-ups; informers add keys to it. ClusterOperator gets contract.ClusterOperator
	// after a status has changed.
	HealthQueue, ClusterOperator informers.Queue
}

// Controller keeps the reporters of all targets.
type Controller struct {
	Options
	metrics *metrics
	applier *ssa.Applier

	began   time.Time          // when Run began
	cluster *informers.Cluster // from Run on
	ctx     context.Context    // of the informers

	encrypted atomic.Pointer[[]schema.GroupResource] // what kube-apiserver is known to encrypt with KMS

	mu      sync.Mutex
	targets map[string]*serverState
}

// New returns a Controller.
func New(o Options) *Controller {
	c := &Controller{Options: o, targets: map[string]*serverState{}, metrics: newMetrics(o.Registry, o.Now),
		applier: ssa.New(o.Client)}
	c.encrypted.Store(new([]schema.GroupResource))
	return c
}

// Run syncs targets until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) {
	cluster := informers.NewCluster(ctx, informers.ClusterOptions{
		Client: c.Client, Resources: c.Resources, Namespace: c.Namespace,
		CheckPolicy: checkPolicy, OpenShift: c.OpenShift,
		Reporters: c.Queue, Health: c.HealthQueue,
	})
	c.mu.Lock()
	c.began, c.cluster, c.ctx = time.Now(), cluster, ctx
	c.mu.Unlock()
	c.Queue.Enqueue(syncqueue.All)
	c.Queue.Work(ctx, workers, c.sync)
}

// sync brings one target to its desired state. It returns after how long to sync it again at the latest; zero: not
// again.
func (c *Controller) sync(ctx context.Context, name string) (again time.Duration) {
	if name == syncqueue.All {
		for _, name := range c.names() {
			c.Queue.Add(name)
		}
		return 0
	}
	config := c.Config.Current()
	if config == nil {
		klog.V(2).InfoS("Not synced: no configuration is active", "apiServer", name)
		return resync
	}
	s := c.resolve(config, name)
	if s == nil {
		c.forget(name)
		return 0
	}
	e := c.entry(s)
	c.observe(s, e)
	leaves := s.Deleting && !s.InConfig
	if s.Undecided && leaves && s.State.Namespace == "" && c.cluster.Roles.HasSynced() && e.published.Name == "" {
		c.forget(name) // nothing was created for it
		return syncqueue.CoalescePeriod
	}
	plan := ComputePlan(s)
	if s.Undecided {
		klog.V(2).InfoS("Nothing is planned", "apiServer", name, "reason", plan.Status.Reason, "message", plan.Status.Message)
	}
	if left := c.Queue.Left(name); left > 0 {
		klog.V(2).InfoS("Not synced: the backoff has not ended", "apiServer", name, "left", left)
		c.publish(s, e, plan)
		return left
	}
	outcome := c.reconcile(ctx, s, plan)
	if !c.cluster.Roles.HasSynced() { // nothing can be recorded without the ClusterRoles
		outcome.NoCondition = !apierrors.IsForbidden(c.cluster.Roles.Err())
	}
	switch {
	case outcome.Recorded.Version != "":
		e.recorded = outcome.Recorded
	case plan.Anchor == nil && !s.Undecided && !s.Unrecorded: // as while Unmanaged: nothing is written
		e.recorded.State = outcome.Recorded.State
	}
	// The state is kept until the informer has seen the ClusterRole deleted. A new one, created from the stale cache,
	// would treat the API server as enabled.
	if plan.Status.Reason == contract.Removed && leaves {
		c.forget(name)
		return syncqueue.CoalescePeriod // the configuration may have a new target of this name
	}
	if ctx.Err() != nil {
		return 0 // the operator is ending, which canceled its requests
	}
	c.finish(e, s, plan, outcome)
	if slices.ContainsFunc(s.own("Pod"), func(pod *unstructured.Unstructured) bool {
		return ended(pod) || s.madeAgain(pod) != nil
	}) {
		return replaceAfter
	}
	return resync
}

// finish publishes and reports an outcome.
func (c *Controller) finish(e *serverState, s *Snapshot, plan *Plan, o *Result) {
	name := e.target.Name
	if !unreachable(o.Err) {
		c.report(e, s, o)
	}
	c.publish(s, e, plan)
	klog.V(4).InfoS("Synced", "apiServer", name, "reason", o.Status.Reason, "err", o.Err)
	c.Queue.Observe(name, o.Err)
	if o.Err != nil {
		c.metrics.errors.WithLabelValues(name).Inc()
	}
}
