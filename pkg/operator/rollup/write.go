package rollup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

func (s *syncing) resource() operatorcr.Resource {
	return operatorcr.ForTarget(string(s.target.Resource), s.target.Name)
}

// standing are the current conditions of the resource.
func (s *syncing) standing(resource *operatorcr.Status) apply.Standing {
	standing, again := s.status.Standing(apply.ObjectOf(s.resource()), apply.Standing{Version: resource.Version, Conditions: resource.Conditions})
	if !again.IsZero() {
		s.requeue(s.now.Add(again.Sub(s.Clock.Now())))
	}
	return standing
}

// write applies the verdict, unless the conditions are already as wanted.
func (s *syncing) write(ctx context.Context, standing apply.Standing, result *rollup.Result) error {
	changed, err := s.status.Apply(ctx, apply.ObjectOf(s.resource()), standing, result.Conditions, nil)
	if err != nil || !changed {
		return err
	}
	for _, condition := range result.Conditions {
		if was := standing.Conditions[condition.Type]; was.Status != condition.Status || was.Reason != condition.Reason {
			s.Event(s.target.Name, eventType(condition), condition.Reason, condition.Type+" is "+condition.Status+": "+condition.Message)
		}
	}
	return nil
}

// eventType is that of an Event about a condition.
func eventType(c operatorcr.Condition) string {
	if c.Type == rollup.Degraded && c.Status != operatorcr.False {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// removal is a report that was removed.
type removal struct {
	// read is the version of the resource that showed it; without, the first one without it.
	read, without string
	at            time.Time
	back          bool // it was written again
}

// precedes reports whether a version of the resource is from after the removal. Where
// versions cannot be compared, any other than the one that was read is.
func (r removal) precedes(version string) bool {
	if is, comparable := apply.AtLeast(version, r.without); comparable {
		return is
	}
	return version != r.read
}

const (
	// remembered bounds how long the removal of a report is kept in memory.
	remembered = time.Hour
	// cleanupManager owns nothing: it only removes.
	cleanupManager = "kms-health-operator-cleanup"
)

// clean removes the reports that no reporter will write again.
func (s *syncing) clean(ctx context.Context, resource *operatorcr.Status, in *rollup.Cleaning) error {
	maps.DeleteFunc(s.removed, func(_ operatorcr.Ref, r removal) bool { return in.Now.Sub(r.at) > remembered })
	in.Removed = map[operatorcr.Ref]bool{}
	for i := range resource.Reports {
		ref := resource.Reports[i].Ref()
		// The version after the removal does not contain it, so a later one that does was
		// written since.
		if r, ok := s.removed[ref]; ok && r.precedes(resource.Version) {
			r.back = true
			s.removed[ref], in.Removed[ref] = r, true
		}
	}
	gone, again := rollup.Leftovers(in)
	s.requeue(again)
	gone = slices.DeleteFunc(gone, func(r operatorcr.Report) bool {
		was, ok := s.removed[r.Ref()]
		return ok && !was.precedes(resource.Version) // the watch does not show it yet
	})
	if len(gone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	after, err := s.Client.Resource(s.resource().GVR()).Patch(ctx, s.resource().Name, types.JSONPatchType, resource.Removal(gone),
		metav1.PatchOptions{FieldManager: cleanupManager}, "status")
	if apierrors.IsConflict(err) {
		return nil // it has changed since, and the watch will deliver that
	}
	if err != nil { // a 422 may be a change, too, or a denial by admission, which would repeat
		return fmt.Errorf("remove reports of %s/%s: %w", s.target.Resource, s.resource().Name, err)
	}
	for i := range gone {
		s.removed[gone[i].Ref()] = removal{read: resource.Version, without: after.GetResourceVersion(), at: in.Now}
		s.Event(s.target.Name, corev1.EventTypeNormal, "ReportRemoved", fmt.Sprintf("the report of node %s (%s) on %s/%s, which no reporter writes any more", gone[i].Node, gone[i].Form, s.target.Resource, s.resource().Name))
	}
	return nil
}
