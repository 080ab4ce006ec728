package rollupcontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// lag is how long the watch may take to show what was written, where its version
// does not tell; longest, where it does.
const (
	lag     = 2 * time.Second
	longest = 30 * time.Second
)

// written is what was last applied, until the watch shows it.
type written struct {
	conditions map[string]rollup.Condition
	version    string // of the resource that came of it
	at         time.Time
}

// standing are the conditions as they are on the resource: what was applied a
// moment ago counts though the watch does not show it yet.
func (c *Controller) standing(name string, resource *rollup.Resource, now time.Time) map[string]rollup.Condition {
	w, just := c.written[name]
	if !just {
		return resource.Conditions
	}
	wait := lag
	shown, comparable := notOlder(resource.Version, w.version)
	if comparable {
		wait = longest
	} else {
		shown = !slices.ContainsFunc(rollup.Types, func(t string) bool { return w.conditions[t] != resource.Conditions[t] })
	}
	if shown || now.Sub(w.at) > wait {
		delete(c.written, name)
		return resource.Conditions
	}
	c.lookAgain(w.at.Add(wait + 1))
	return w.conditions
}

// notOlder compares resource versions of one object, as Kubernetes lets clients do
// (KEP-5504).
func notOlder(shown, written string) (is, comparable bool) {
	a, err := strconv.ParseUint(shown, 10, 64)
	if err != nil {
		return false, false
	}
	b, err := strconv.ParseUint(written, 10, 64)
	return a >= b, err == nil
}

// write applies the verdict, unless it stands already.
func (c *Controller) write(ctx context.Context, t *Target, in *rollup.Input, result *rollup.Result) error {
	if result.Same(in.Previous) {
		return nil
	}
	wanted := map[string]rollup.Condition{}
	conditions := []any{}
	for _, condition := range result.Conditions {
		wanted[condition.Type] = condition
		conditions = append(conditions, condition.Fields())
	}
	body := map[string]any{
		"apiVersion": "operator.openshift.io/v1", "kind": target.KindOf(t.Resource), "metadata": map[string]any{"name": "cluster"},
	}
	if len(conditions) > 0 {
		body["status"] = map[string]any{"conditions": conditions}
	}
	raw, err := applybody.Marshal(body)
	if err != nil {
		return fmt.Errorf("marshal the roll-up: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	force := true
	applied, err := c.Client.Resource(target.ResourceOf(t.Resource)).Patch(ctx, "cluster", types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: render.Manager, Force: &force}, "status")
	if err != nil {
		return fmt.Errorf("write the roll-up of %s/cluster: %w", t.Resource, err)
	}
	c.written[t.Name] = written{conditions: wanted, version: applied.GetResourceVersion(), at: c.Clock.Now()}
	for _, condition := range result.Conditions {
		if was := in.Previous[condition.Type]; was.Status != condition.Status || was.Reason != condition.Reason {
			c.Event(t.Name, condition.Reason, condition.Type+" is "+condition.Status+": "+condition.Message)
		}
	}
	return nil
}

// removal is a report that was removed.
type removal struct {
	version string // of the resource that showed it
	at      time.Time
	back    bool // it was written again
}

// remembered bounds for how long it is known that a report was removed.
const remembered = time.Hour

// clean removes the reports that nobody will write again.
func (c *Controller) clean(ctx context.Context, t *Target, resource *rollup.Resource, in *rollup.Cleaning) error {
	removed := c.removed[t.Name]
	maps.DeleteFunc(removed, func(_ rollup.Ref, r removal) bool { return in.Now.Sub(r.at) > remembered })
	in.Removed = map[rollup.Ref]bool{}
	for i := range resource.Reports {
		ref := resource.Reports[i].Ref()
		// The version that the removal made does not show it, so a later one that does
		// was written since.
		if r, ok := removed[ref]; ok && r.version != resource.Version {
			r.back = true
			removed[ref], in.Removed[ref] = r, true
		}
	}
	gone, again := rollup.Leftovers(in)
	c.lookAgain(again)
	gone = slices.DeleteFunc(gone, func(r rollup.Report) bool {
		was, ok := removed[r.Ref()]
		return ok && was.version == resource.Version // the watch does not show it yet
	})
	if len(gone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := c.Client.Resource(target.ResourceOf(t.Resource)).Patch(ctx, "cluster", types.JSONPatchType, resource.Removal(gone),
		metav1.PatchOptions{FieldManager: cleanupManager}, "status")
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		return nil // it has changed since, which the watch will tell
	}
	if err != nil {
		return fmt.Errorf("remove reports of %s/cluster: %w", t.Resource, err)
	}
	if c.removed[t.Name] == nil {
		c.removed[t.Name] = map[rollup.Ref]removal{}
	}
	for i := range gone {
		c.removed[t.Name][gone[i].Ref()] = removal{version: resource.Version, at: in.Now}
		c.Event(t.Name, "ReportRemoved", fmt.Sprintf("the report of node %s (%s) on %s/cluster, which nobody writes any more", gone[i].Node, gone[i].Form, t.Resource))
	}
	return nil
}

// cleanupManager owns nothing: it only takes away.
const cleanupManager = "kms-health-operator-cleanup"
