package pluginhealthcontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// cleanupManager owns nothing: it only removes.
const cleanupManager = "kms-health-operator-cleanup"

// write applies a result, unless the current conditions equal it.
func (s *healthSync) write(ctx context.Context, current map[string]operatorstatus.Condition,
	result *rollup.Result) error {
	own := *result
	if s.owner != "" && s.now.Before(s.ownedUntil) { // the other owner decides; the metrics read the result's own map
		own.Conditions, current = maps.Clone(own.Conditions), maps.Clone(current)
		delete(own.Conditions, contract.PluginsDegraded)
		delete(current, contract.PluginsDegraded)
	}
	if own.Same(current) {
		klog.V(4).InfoS("Conditions are unchanged", "apiServer", s.target.Name)
		return nil
	}
	o, err := s.apply(ctx, own.Conditions)
	if err != nil || o == nil {
		return err
	}
	version := o.GetResourceVersion()
	if !ssa.AtLeast(version, s.resource.Version) { // etcd was restored, and lost what was written and seen
		klog.InfoS("The resource has an older version than before, reading it again", "apiServer", s.target.Name,
			"resource", s.target.ReportsTo().String(), "before", s.resource.Version, "now", version)
		s.target.Sources.Resource.Relist()
		version = ""
	}
	s.conditions, s.written = own.Conditions, version
	for _, c := range own.Conditions {
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

// apply writes conditions by Server-Side Apply. If another manager owns KMSPluginsDegraded it writes nothing (nil): the
// next sync yields, and reports the owner. It takes over any other condition: only a person's edit may own that.
func (s *healthSync) apply(ctx context.Context, conditions map[string]operatorstatus.Condition,
) (*unstructured.Unstructured, error) {
	o, err := ssa.ApplyStatus(ctx, s.Client, s.target.ReportsTo(), conditions, map[string]any{}, false)
	owner := ssa.OwnerOf(err, contract.PluginsDegraded)
	if owner != "" {
		o, err = nil, nil
	} else if apierrors.IsConflict(err) {
		o, err = ssa.ApplyStatus(ctx, s.Client, s.target.ReportsTo(), conditions, map[string]any{}, true)
	}
	if _, tried := conditions[contract.PluginsDegraded]; tried && err == nil && (owner != "" || s.owner != "") {
		s.owner, s.ownedUntil = owner, s.now.Add(resync)
		s.requeue(s.now.Add(1)) // for KMSHealthReporting, which reports the owner
	}
	return o, err
}

// leftovers returns the types of conditions that nobody will write again. Of the reports these are all, once the API
// server is off and its reporters are removed; stale ones of a node that does not exist; and those stale for a
// QuietPeriod on a node that should not report. After all were removed once, others than stale ones have a writer that
// is not known. The roll-up's are left over while the API server is off and has none.
func (s *healthSync) leftovers(in *rollup.Input, result *rollup.Result) (gone []string) {
	off := s.target.Off
	for _, r := range in.Reports {
		if r.Form != operatorstatus.FormCondition || in.Expects(r.Node) && !off || off && !s.target.Clean {
			continue
		}
		due := r.StaleFrom()
		if off && !s.removed {
			due = s.now
		} else if _, exists := s.node(r.Node); exists && !off {
			due = due.Add(rollup.QuietPeriod)
		}
		if s.now.Before(due) {
			s.requeue(due)
			continue
		}
		gone = append(gone, contract.ConditionType(r.Node))
	}
	for _, own := range rollup.Types {
		if _, has := in.Previous[own]; has && len(result.Conditions) == 0 && !s.removed {
			gone = append(gone, own)
		}
	}
	return gone
}

// remove removes leftovers of this project: the field managers show who wrote a condition. Server-Side Apply would not
// remove a condition of which a person's edit owns a part, or the last of a list that another writer created by a PUT.
// A write after the object was read makes the removal a conflict; the watch will deliver that write.
func (s *healthSync) remove(ctx context.Context, left []string) error {
	if len(left) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ssa.RequestTimeout)
	defer cancel()
	to := s.target.ReportsTo()
	client := s.Client.Resource(to.GVR())
	// The operator has no right to get it.
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + to.Name})
	if err != nil {
		return fmt.Errorf("read the writers of conditions of %s: %w", to, err)
	}
	if len(list.Items) == 0 { // the watch will deliver its deletion
		return nil
	}
	o := &list.Items[0]
	left = slices.DeleteFunc(left, func(conditionType string) bool {
		managers := operatorstatus.Managers(o, conditionType)
		node, isReport := contract.NodeOf(conditionType)
		ours := func(manager string) bool { return contract.WritesFor(manager, node) }
		return isReport && !slices.ContainsFunc(managers, ours) || !isReport && slices.ContainsFunc(managers, ssa.IsOther)
	})
	if body := operatorstatus.Removal(o, left); body != nil {
		_, err = client.Patch(ctx, to.Name, types.JSONPatchType, body,
			metav1.PatchOptions{FieldManager: cleanupManager}, "status")
		if apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("remove conditions of %s: %w", to, err)
		}
	}
	s.removed = s.target.Off && s.target.Clean
	for _, conditionType := range left {
		if node, isReport := contract.NodeOf(conditionType); isReport {
			s.Event(s.target.Name, corev1.EventTypeNormal, contract.EventReportRemoved,
				fmt.Sprintf("the report of node %s on %s, which no reporter writes any more", node, to))
		}
	}
	return nil
}
