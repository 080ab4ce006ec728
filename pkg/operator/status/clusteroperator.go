package status

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/retry"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// object is created by the manifests, not by the operator.
var object = Object{Resource: source.ClusterOperators, Kind: "ClusterOperator", Name: contract.ClusterOperator}

const (
	// settleOperator is how long a sync waits for more of the same change.
	settleOperator = 100 * time.Millisecond
	resyncOperator = 5 * time.Minute
	// readyCheck is how often it is looked whether there is something to report.
	readyCheck = 5 * time.Second
	// A write that fails is tried again after these.
	firstOperatorRetry, lastOperatorRetry = time.Second, 5 * time.Second
)

// RelatedObject is one which `oc adm inspect` collects.
type RelatedObject struct {
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// ClusterOperatorOptions of a ClusterOperator.
type ClusterOperatorOptions struct {
	Client dynamic.Interface
	// Clock is for timers. Now is the time by the API server's clock.
	Clock clock.WithTicker
	Now   func() time.Time
	// Version is the operator's.
	Version string
	// Inertia is how long something must be bad before Degraded reports it.
	Inertia time.Duration
	// Observe returns what there is to report, and the related objects; false: nothing
	// yet, or this is no OpenShift.
	Observe func() (Input, []RelatedObject, bool)
}

// ClusterOperator keeps ClusterOperator/kms-health, the operator's own state as `oc get
// clusteroperators` shows it: the state of its configuration, of the deliveries and of the
// roll-ups, with inertia, so that a problem that ends by itself soon causes no alert.
type ClusterOperator struct {
	ClusterOperatorOptions
	queue retry.Queue // of one item: the name
	retry *retry.Backoff
	// source is followed from the first time on that there is something to report: where
	// this is no OpenShift there is no right to read it.
	source *source.Source[Standing]
	follow func()
	status *Writer
	since  map[string]time.Time
	began  time.Time
}

// NewClusterOperator makes a ClusterOperator.
func NewClusterOperator(o ClusterOperatorOptions) *ClusterOperator {
	c := &ClusterOperator{
		ClusterOperatorOptions: o, since: map[string]time.Time{},
		queue: retry.NewQueue(o.Clock),
		retry: retry.New(o.Clock, firstOperatorRetry, lastOperatorRetry),
	}
	c.retry.Failed, c.retry.Recovered, c.retry.KeyName = "Failed to write the ClusterOperator, retrying",
		"Wrote the ClusterOperator again", "name"
	c.status = &Writer{
		Client: o.Client, Manager: contract.OperatorName, Types: []string{Available, Progressing, Degraded, Upgradeable},
		Clock: o.Clock,
	}
	c.source = source.New(o.Client, nil, source.Selection{Resource: object.Resource, Name: object.Name}, read, c.Wake)
	return c
}

// Wake enqueues a sync.
func (c *ClusterOperator) Wake() { c.queue.AddAfter(object.Name, settleOperator) }

// Run keeps it until ctx ends. One replica at a time may run.
func (c *ClusterOperator) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	c.began = c.Now()
	c.follow = sync.OnceFunc(func() { running.Go(func() { c.source.Run(ctx) }) })
	c.Wake()
	c.queue.Work(ctx, 1, func(ctx context.Context, name string) time.Duration {
		again, err := c.sync(ctx)
		if delay := c.retry.Observe(name, err); delay > 0 {
			again = delay
		}
		return max(1, again)
	})
}

func read(o *unstructured.Unstructured) Standing {
	s := Standing{Version: o.GetResourceVersion(), Conditions: operatorcr.ReadConditions(o), Fields: map[string]any{}}
	for _, field := range []string{"versions", "relatedObjects"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(o.Object, "status", field); found {
			s.Fields[field] = value
		}
	}
	return s
}

// sync brings the ClusterOperator's status about. It returns how soon to sync again.
func (c *ClusterOperator) sync(ctx context.Context) (again time.Duration, err error) {
	in, related, ready := c.Observe()
	if !ready {
		return readyCheck, nil
	}
	c.follow()
	shown, exists := c.source.Get("", object.Name)
	if !exists {
		return resyncOperator, nil
	}
	standing, at := c.status.Standing(object, shown)
	again = resyncOperator
	if !at.IsZero() {
		again = min(again, max(0, at.Sub(c.Clock.Now())))
	}
	in.Now, in.Inertia, in.Since, in.Previous, in.Began = c.Now(), c.Inertia, c.since, standing.Conditions, c.began
	conditions, at := Evaluate(&in)
	if !at.IsZero() {
		again = min(again, max(0, at.Sub(in.Now)))
	}
	fields := map[string]any{"versions": []map[string]string{{"name": "operator", "version": c.Version}},
		"relatedObjects": related}
	// A new version is that of the whole once its reporters are rolled out, too.
	progressing := slices.ContainsFunc(conditions, func(c operatorcr.Condition) bool {
		return c.Type == Progressing &&
			c.Status == operatorcr.True
	})
	if was := standing.Fields["versions"]; was != nil && progressing {
		fields["versions"] = was
	}
	_, err = c.status.Apply(ctx, object, standing, conditions, fields)
	return again, err
}
