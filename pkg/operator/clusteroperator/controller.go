package clusteroperator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/operator/pass"
	"github.com/kms-health/kms-health/pkg/operator/watch"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Name is the ClusterOperator's. It is made by the manifests, not by the operator.
const Name = "kms-health"

// manager is the field manager.
const manager = "kms-health-operator"

var resource = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "clusteroperators"}

const (
	// settle is how long to wait for more of the same change.
	settle         = 100 * time.Millisecond
	resync         = 5 * time.Minute
	retry          = 5 * time.Second
	lag            = 2 * time.Second // of the watch behind a write
	requestTimeout = 10 * time.Second
)

// Object is a related one, which `oc adm inspect` collects.
type Object struct {
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Options of a Controller.
type Options struct {
	Client  dynamic.Interface
	Sources *watch.Set
	Clock   clock.Clock
	// Version is the operator's.
	Version string
	// Inertia is how long something must be bad before Degraded tells.
	Inertia time.Duration
	// Look returns what there is to tell, and the related objects; false: nothing
	// yet, or this is no OpenShift.
	Look func() (Input, []Object, bool)
}

// Controller keeps the ClusterOperator.
type Controller struct {
	Options
	loop  *pass.Loop
	view  *watch.View
	since map[string]time.Time
	wrote *written // until the watch shows it; nil: it did
	text  string   // the last error
}

// written is what was last applied.
type written struct {
	conditions []rollup.Condition
	related    []Object
	at         time.Time
}

// New makes a Controller.
func New(o Options) *Controller {
	c := &Controller{Options: o, loop: pass.NewLoop(o.Clock, settle), since: map[string]time.Time{}}
	c.view = o.Sources.View(c.Wake)
	return c
}

// Wake asks for a look.
func (c *Controller) Wake() { c.loop.Wake() }

// Run keeps it until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx, c.pass) }

// read is what matters of the ClusterOperator.
type read struct {
	conditions map[string]rollup.Condition
	versions   any
	related    any
}

func readOperator(o *unstructured.Unstructured) read {
	r := read{conditions: rollup.ReadConditions(o)}
	r.versions, _, _ = unstructured.NestedFieldNoCopy(o.Object, "status", "versions")
	r.related, _, _ = unstructured.NestedFieldNoCopy(o.Object, "status", "relatedObjects")
	return r
}

func (c *Controller) pass(ctx context.Context) time.Duration {
	c.view.Begin()
	defer c.view.End()
	in, related, ready := c.Look()
	if !ready {
		return resync
	}
	source := watch.Follow(ctx, c.view, watch.Selection{Resource: resource, Name: Name}, readOperator, nil)
	standing, exists := source.Get("", Name)
	if !exists {
		return resync
	}
	now := c.Clock.Now()
	wait := resync
	if w := c.wrote; w != nil {
		left := w.at.Add(lag).Sub(now)
		if left > 0 && !c.stands(standing, w.conditions, w.related) {
			standing, wait = c.reads(w), left
		} else {
			c.wrote = nil
		}
	}
	in.Now, in.Inertia, in.Since, in.Previous = now, c.Inertia, c.since, standing.conditions
	conditions, again := Evaluate(&in)
	if !again.IsZero() {
		wait = min(wait, max(0, again.Sub(now)))
	}
	if c.stands(standing, conditions, related) {
		return wait
	}
	raw, err := c.body(conditions, related)
	if err != nil {
		klog.ErrorS(err, "ClusterOperator")
		return wait
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	force := true
	_, err = c.Client.Resource(resource).Patch(ctx, Name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: manager, Force: &force}, "status")
	if err != nil {
		if text := err.Error(); text != c.text {
			c.text = text
			klog.ErrorS(err, "The ClusterOperator could not be written, which is tried again", "name", Name)
		}
		return min(wait, retry)
	}
	c.wrote, c.text = &written{conditions, related, now}, ""
	return min(wait, lag)
}

func (c *Controller) body(conditions []rollup.Condition, related []Object) ([]byte, error) {
	var list []map[string]any
	for _, condition := range conditions {
		list = append(list, condition.Fields())
	}
	raw, err := applybody.Marshal(map[string]any{
		"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": map[string]any{"name": Name},
		"status": map[string]any{"conditions": list, "versions": c.versions(), "relatedObjects": related},
	})
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	return raw, nil
}

func (c *Controller) versions() []map[string]string {
	return []map[string]string{{"name": "operator", "version": c.Version}}
}

// reads is what was written as it is read back.
func (c *Controller) reads(w *written) read {
	r := read{conditions: map[string]rollup.Condition{}, versions: c.versions(), related: w.related}
	for _, condition := range w.conditions {
		r.conditions[condition.Type] = condition
	}
	return r
}

// stands says whether all is as it is to be.
func (c *Controller) stands(standing read, conditions []rollup.Condition, related []Object) bool {
	for _, condition := range conditions {
		if standing.conditions[condition.Type] != condition {
			return false
		}
	}
	return sameJSON(standing.versions, c.versions()) && sameJSON(standing.related, related)
}

// sameJSON compares what the API server shows with what is to be written.
func sameJSON(a, b any) bool {
	normal := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		var plain any
		if err := json.Unmarshal(raw, &plain); err != nil {
			return ""
		}
		raw, err = json.Marshal(plain) // with sorted keys
		if err != nil {
			return ""
		}
		return string(raw)
	}
	return normal(a) == normal(b)
}
