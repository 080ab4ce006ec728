package pluginhealthcontroller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// cleanupManager owns nothing: it only removes.
const cleanupManager = "kms-health-operator-cleanup"

func (s *healthSync) resource() contract.Resource {
	return contract.ResourceFor(string(s.target.Resource), s.target.Name)
}

// write applies a result, unless the current conditions are as it wants them.
func (s *healthSync) write(ctx context.Context, current map[string]operatorstatus.Condition, result *rollup.Result) error {
	if result.Same(current) {
		return nil
	}
	version, err := ssa.ApplyStatus(ctx, s.Client, s.resource(), result.Conditions, map[string]any{})
	if err != nil {
		return err
	}
	s.conditions, s.written = result.Conditions, version
	for _, c := range result.Conditions {
		if was := current[c.Type]; was.Status != c.Status || was.Reason != c.Reason {
			eventType := corev1.EventTypeNormal
			degraded := c.Type == contract.PluginsDegraded && c.Status != operatorstatus.False
			if degraded || contract.RollupReasonOf(c.Reason).NeedsAction {
				eventType = corev1.EventTypeWarning
			}
			s.Event(s.target.Name, eventType, c.Reason, c.Type+" is "+c.Status+": "+c.Message)
		}
	}
	return nil
}

// leftovers are the own reports that no reporter will write again: all, once the API server is off and
// its reporters are removed; stale ones of a node that does not exist; and those that have been
// stale for a QuietPeriod where no reporter should report. After one removal of all, only stale ones
// are: their writer, which the operator does not know, still runs.
func (s *healthSync) leftovers(reports []operatorstatus.Report, nodes []rollup.Node) (gone []operatorstatus.Report) {
	off := s.target.Off
	for _, r := range reports {
		expected := slices.ContainsFunc(nodes, func(n rollup.Node) bool {
			return n.Name == r.Node && (n.Keys == nil || len(n.Keys) > 0)
		})
		if !r.Ours || expected && !off {
			continue
		}
		due := r.StaleFrom()
		if off && !s.cleaned {
			due = s.now
		} else if _, exists := s.node(r.Node); exists && !off {
			due = due.Add(rollup.QuietPeriod)
		}
		if s.now.Before(due) {
			s.requeue(due)
			continue
		}
		gone = append(gone, r)
	}
	return gone
}

// clean removes leftovers. A write since they were read makes it a conflict: then the watch delivers
// that write.
func (s *healthSync) clean(ctx context.Context, resource *operatorstatus.Status, nodes []rollup.Node) error {
	gone := s.leftovers(resource.Reports, nodes)
	if len(gone) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ssa.RequestTimeout)
	defer cancel()
	to := s.resource()
	_, err := s.Client.Resource(to.GVR()).Patch(ctx, to.Name, types.JSONPatchType,
		operatorstatus.Removal(resource.Version, gone), metav1.PatchOptions{FieldManager: cleanupManager}, "status")
	if apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove reports of %s: %w", to, err)
	}
	s.cleaned = s.target.Off
	for i := range gone {
		s.Event(s.target.Name, corev1.EventTypeNormal, contract.EventReportRemoved,
			fmt.Sprintf("the report of node %s on %s, which no reporter writes any more", gone[i].Node, to))
	}
	return nil
}
