package status

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/apiserver"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

func (s *syncing) resource() contract.Resource {
	return contract.ResourceFor(string(s.target.Resource), s.target.Name)
}

// standing are the current conditions of the resource.
func (s *syncing) standing(resource *operatorcr.Status) Standing {
	standing, again := s.status.Standing(ObjectOf(s.resource()),
		Standing{Version: resource.Version, Conditions: resource.Conditions})
	if !again.IsZero() {
		s.requeue(s.now.Add(again.Sub(s.Clock.Now())))
	}
	return standing
}

// write applies the verdict, unless the conditions are already as wanted.
func (s *syncing) write(ctx context.Context, standing Standing, result *rollup.Result) error {
	changed, err := s.status.Apply(ctx, ObjectOf(s.resource()), standing, result.Conditions, nil)
	if err != nil || !changed {
		return err
	}
	for _, condition := range result.Conditions {
		if was := standing.Conditions[condition.Type]; was.Status != condition.Status || was.Reason != condition.Reason {
			s.Event(s.target.Name, eventType(condition), condition.Reason,
				condition.Type+" is "+condition.Status+": "+condition.Message)
		}
	}
	return nil
}

// eventType is that of an Event about a condition.
func eventType(c operatorcr.Condition) string {
	reporting := c.Type == contract.HealthReporting && contract.RollupReasonOf(c.Reason).NeedsAction
	if reporting || c.Type == contract.PluginsDegraded && c.Status != operatorcr.False {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// removal is a report that was removed.
type removal struct {
	without string // the first version of the resource without it
	at      time.Time
	back    bool // it was written again
}

const (
	// remembered bounds how long the removal of a report is kept in memory.
	remembered = time.Hour
	// removalTries bounds how often a removal is made in one sync.
	removalTries = 5
	// cleanupManager owns nothing: it only removes.
	cleanupManager = "kms-health-operator-cleanup"
)

// clean removes the reports that no reporter will write again. A JSON patch names a
// condition by its place in the list, which every other writer may change, several times a
// second: after a rejection it is made again from the resource as it is now. If it is the
// same again, it was denied by admission.
func (s *syncing) clean(ctx context.Context, resource *operatorcr.Status, in *rollup.Cleaning) error {
	maps.DeleteFunc(s.removed, func(_ operatorcr.Ref, r removal) bool { return in.Now.Sub(r.at) > remembered })
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, name := s.Client.Resource(s.resource().GVR()), s.resource().Name
	var rejected []byte
	var err error
	for range removalTries {
		gone := s.leftovers(resource, in)
		if len(gone) == 0 {
			return nil
		}
		patch := operatorcr.Removal(gone)
		if bytes.Equal(patch, rejected) {
			break
		}
		var after *unstructured.Unstructured
		after, err = client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: cleanupManager},
			"status")
		if err == nil {
			s.recordRemoved(gone, after.GetResourceVersion(), in.Now)
			return nil
		}
		if apierrors.IsConflict(err) {
			return nil // it has changed since, and the watch will deliver that
		}
		if !apierrors.IsInvalid(err) {
			break
		}
		rejected = patch
		now, failed := client.List(ctx,
			metav1.ListOptions{FieldSelector: "metadata.name=" + name}) // to get one is no right of the operator's
		if failed != nil {
			err = failed
			break
		}
		if len(now.Items) == 0 {
			return nil // it was deleted
		}
		resource = operatorcr.Read(&now.Items[0])
	}
	return fmt.Errorf("remove reports of %s/%s: %w", s.target.Resource, name, err)
}

// leftovers are the reports to remove.
func (s *syncing) leftovers(resource *operatorcr.Status, in *rollup.Cleaning) []operatorcr.Report {
	in.Reports, in.Removed = resource.Reports, map[operatorcr.Ref]bool{}
	for i := range resource.Reports {
		ref := resource.Reports[i].Ref()
		// The version after the removal does not contain it, so a later one that does was
		// written since.
		if r, ok := s.removed[ref]; ok && apiserver.Shows(resource.Version, r.without) {
			r.back = true
			s.removed[ref], in.Removed[ref] = r, true
		}
	}
	gone, again := rollup.Leftovers(in)
	s.requeue(again)
	return slices.DeleteFunc(gone, func(r operatorcr.Report) bool {
		was, ok := s.removed[r.Ref()]
		return ok && !apiserver.Shows(resource.Version, was.without) // the watch does not show it yet
	})
}

// recordRemoved keeps and reports what was removed. without is the first version without it.
func (s *syncing) recordRemoved(gone []operatorcr.Report, without string, at time.Time) {
	for i := range gone {
		s.removed[gone[i].Ref()] = removal{without: without, at: at}
		s.Event(s.target.Name, corev1.EventTypeNormal, contract.EventReportRemoved,
			fmt.Sprintf("the report of node %s (%s) on %s/%s, which no reporter writes any more", gone[i].Node, gone[i].Form,
				s.target.Resource, s.resource().Name))
	}
}
