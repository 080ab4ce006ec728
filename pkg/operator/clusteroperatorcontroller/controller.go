// Package clusteroperatorcontroller reports the operator's own state as `oc get clusteroperators` shows it: its
// configuration, the deliveries, and the roll-ups.
package clusteroperatorcontroller

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// object is created by the manifests, not by the operator.
var object = contract.Resource{
	Group: informers.ClusterOperators.Group, Version: informers.ClusterOperators.Version,
	Plural: informers.ClusterOperators.Resource, Kind: "ClusterOperator", Name: contract.ClusterOperator,
}

const (
	coalescePeriod        = 20 * time.Millisecond
	resync                = 5 * time.Minute
	firstRetry, lastRetry = 250 * time.Millisecond, 5 * time.Second
)

// readyCheck is how often it is looked whether there is something to report.
const readyCheck = 5 * time.Second

// Options of a Controller.
type Options struct {
	Client  dynamic.Interface
	Clock   clock.WithTicker
	Now     func() time.Time
	Version string
	Inertia time.Duration // how long something must be bad before Degraded reports it
	// Observe returns what there is to report, and the related objects, which `oc adm inspect`
	// collects; false: nothing yet, or this is no OpenShift.
	Observe func() (in Input, related []any, ready bool)
}

// Controller keeps ClusterOperator/kms-health, the operator's own state as `oc get
// clusteroperators` shows it: the state of its configuration, of the deliveries and of the
// roll-ups, with inertia, so that a problem that ends by itself soon causes no alert.
type Controller struct {
	Options
	queue *syncqueue.Queue // of one item: the name
	// source is followed from the first time on that there is something to report: where
	// this is no OpenShift there is no right to read it.
	source *informers.Informer[shown]
	follow sync.Once
	since  map[string]time.Time
}

// New makes a Controller.
func New(o Options) *Controller {
	c := &Controller{
		Options: o,
		queue:   syncqueue.NewQueue(o.Clock, "write the ClusterOperator", firstRetry, lastRetry),
	}
	c.source = informers.New(o.Client, informers.Selection{Resource: object.GVR(), Name: object.Name}, read, c.Enqueue)
	return c
}

// Enqueue enqueues a sync.
func (c *Controller) Enqueue() { c.queue.AddAfter(object.Name, coalescePeriod) }

// Run keeps it until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	c.Enqueue()
	c.queue.Work(ctx, 1, func(_ context.Context, name string) time.Duration {
		in, related, ready := c.Observe()
		if !ready {
			return readyCheck
		}
		c.follow.Do(func() { running.Go(func() { c.source.Run(ctx) }) })
		again, err := c.sync(ctx, in, related)
		c.queue.Observe(name, err)
		return max(1, again)
	})
}

// shown is what the watch shows of the status: all conditions, and the operator's other fields.
type shown struct {
	conditions        map[string]operatorstatus.Condition
	versions, related []any
}

func read(o *unstructured.Unstructured) (s shown) {
	s.conditions = operatorstatus.ReadConditions(o)
	s.versions, _, _ = unstructured.NestedSlice(o.Object, "status", "versions")
	s.related, _, _ = unstructured.NestedSlice(o.Object, "status", "relatedObjects")
	return s
}

// sync brings the ClusterOperator's status about. It returns how soon to sync again.
func (c *Controller) sync(ctx context.Context, in Input, related []any) (again time.Duration, err error) {
	current, exists := c.source.Get("", object.Name)
	if !exists {
		return resync, nil
	}
	in.Now, in.Inertia, in.Since, in.Previous = c.Now(), c.Inertia, c.since, current.conditions
	conditions, at, since := Evaluate(&in)
	again, c.since = resync, since
	if !at.IsZero() {
		again = min(again, max(0, at.Sub(in.Now)))
	}
	versions := []any{map[string]any{"name": "operator", "version": c.Version}}
	// A new version is that of the whole once its reporters are rolled out, too.
	if conditions[Progressing].Status == operatorstatus.True && current.versions != nil {
		versions = current.versions
	}
	same := reflect.DeepEqual(current.versions, versions) && reflect.DeepEqual(current.related, related)
	for kind, condition := range conditions {
		same = same && current.conditions[kind] == condition
	}
	if same {
		return again, nil
	}
	_, err = ssa.ApplyStatus(ctx, c.Client, object, conditions, map[string]any{"versions": versions, "relatedObjects": related})
	return again, err
}
