// Package clusteroperatorcontroller reports the operator's own state as `oc get clusteroperators` shows it: its
// configuration, the deliveries, and the roll-ups.
package clusteroperatorcontroller

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
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
	resync     = 5 * time.Minute
	readyCheck = 5 * time.Second // between two checks whether there is something to report
)

// Controller keeps ClusterOperator/kms-health. Inertia keeps a short problem from causing an alert.
type Controller struct {
	Client    dynamic.Interface
	Now       func() time.Time // by the API server's clock
	Version   string
	Inertia   time.Duration    // how long a problem must last before Degraded reports it
	Namespace string           // the operator's own
	OpenShift bool             // else nothing is written
	Queue     *syncqueue.Queue // of one item: contract.ClusterOperator
	// What is reported.
	Config interface { // configobserver.File
		Current() *v1alpha1.OperatorConfiguration
		Problem() string
	}
	Reporters interface{ Targets() []delivery.Target }
	Health    interface {
		Verdict(target string) delivery.Verdict
	}

	since map[string]time.Time
}

// Run syncs the ClusterOperator until ctx ends. One replica at a time may run.
func (c *Controller) Run(ctx context.Context) {
	began := time.Now()
	c.Queue.Enqueue(object.Name)
	c.Queue.Work(ctx, 1, func(ctx context.Context, name string) time.Duration {
		in, ready := c.collect(time.Since(began))
		if !ready {
			klog.V(2).InfoS("ClusterOperator is not written: nothing is known yet, or this is no OpenShift")
			return readyCheck
		}
		if left := c.Queue.Left(name); left > 0 {
			return left
		}
		again, err := c.sync(ctx, in)
		c.Queue.Observe(name, err)
		return max(1, again)
	})
}

// sync updates the ClusterOperator's status. It returns after how long to sync again.
func (c *Controller) sync(ctx context.Context, in Input) (again time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, ssa.RequestTimeout)
	defer cancel()
	cached := metav1.GetOptions{ResourceVersion: "0"} // the API server's cache
	current, err := c.Client.Resource(object.GVR()).Get(limited, object.Name, cached)
	if apierrors.IsNotFound(err) {
		return resync, nil
	}
	if err != nil {
		return resync, fmt.Errorf("read %s: %w", object, err)
	}
	shownVersions, _, _ := unstructured.NestedSlice(current.Object, "status", "versions")
	shownRelated, _, _ := unstructured.NestedSlice(current.Object, "status", "relatedObjects")
	in.Previous = operatorstatus.ReadConditions(current)
	in.Now, in.Wall, in.Inertia, in.Since = time.Now(), c.Now(), c.Inertia, c.since
	conditions, at, since := Evaluate(&in)
	again, c.since = resync, since
	if !at.IsZero() {
		again = min(again, max(0, at.Sub(in.Now)))
	}
	versions := []any{map[string]any{"name": "operator", "version": c.Version}}
	// A new version is reported once its reporters are rolled out, too.
	if conditions[Progressing].Status == operatorstatus.True && shownVersions != nil {
		versions = shownVersions
	}
	related := related(c.Namespace, in.Targets)
	same := reflect.DeepEqual(shownVersions, versions) && reflect.DeepEqual(shownRelated, related)
	for kind, condition := range conditions {
		same = same && in.Previous[kind] == condition
	}
	if same {
		klog.V(4).InfoS("ClusterOperator is unchanged")
		return again, nil
	}
	_, err = ssa.ApplyStatus(ctx, c.Client, object, conditions,
		map[string]any{"versions": versions, "relatedObjects": related}, true)
	return again, err
}
