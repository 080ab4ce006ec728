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
	if len(conditions) == 0 && (err == nil || apierrors.IsInvalid(err)) {
		return s.withdraw(ctx, o)
	}
	return o, err
}

// withdraw removes what Server-Side Apply cannot remove. A person's edit may own a part of a condition, too. And the
// last elements of a list stay if another writer created the list by a PUT: then the apply is Invalid, and o is nil.
func (s *healthSync) withdraw(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, ssa.RequestTimeout)
	defer cancel()
	var err error
	if o == nil {
		o, err = s.read(ctx)
	}
	if err == nil {
		own := slices.DeleteFunc(slices.Clone(rollup.Types), func(conditionType string) bool {
			return slices.ContainsFunc(operatorstatus.Managers(o, conditionType), ssa.IsOther)
		})
		if body := operatorstatus.Removal(o, own); body != nil {
			o, err = s.patch(ctx, body, contract.OperatorName)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("remove conditions of %s: %w", s.target.ReportsTo(), err)
	}
	return o, nil
}

// patch sends a JSON patch of the resource's status.
func (s *healthSync) patch(ctx context.Context, body []byte, manager string) (*unstructured.Unstructured, error) {
	to := s.target.ReportsTo()
	return s.Client.Resource(to.GVR()).Patch(ctx, to.Name, types.JSONPatchType, body,
		metav1.PatchOptions{FieldManager: manager}, "status")
}

// read reads the resource from etcd, with its managed fields, by a list: the operator has no right to get it.
func (s *healthSync) read(ctx context.Context) (*unstructured.Unstructured, error) {
	to := s.target.ReportsTo()
	list, err := s.Client.Resource(to.GVR()).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + to.Name})
	if err == nil && len(list.Items) == 0 {
		err = apierrors.NewNotFound(to.GVR().GroupResource(), to.Name)
	}
	if err != nil {
		return nil, err
	}
	return &list.Items[0], nil
}

// leftovers returns the nodes of the reports that no reporter will write again: all, once the API server is off and its
// reporters are removed; stale ones of a node that does not exist; and those stale for a QuietPeriod on a node that
// should not report. After all were removed once, others than stale ones have a writer that is not known.
func (s *healthSync) leftovers(in *rollup.Input) (gone []string) {
	off := s.target.Off
	for _, r := range in.Reports {
		if r.Form != operatorstatus.FormCondition || in.Expects(r.Node) && !off {
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
		gone = append(gone, r.Node)
	}
	return gone
}

// clean removes leftovers of this project: the field managers show who wrote a report. A write after the object was
// read makes the removal a conflict; the watch will deliver that write.
func (s *healthSync) clean(ctx context.Context, in *rollup.Input) error {
	left := s.leftovers(in)
	if len(left) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ssa.RequestTimeout)
	defer cancel()
	to := s.target.ReportsTo()
	o, err := s.read(ctx)
	if err != nil {
		return fmt.Errorf("read the writers of reports of %s: %w", to, err)
	}
	var nodes, gone []string
	for _, node := range left {
		conditionType, ours := contract.ConditionType(node), func(m string) bool { return contract.WritesFor(m, node) }
		if slices.ContainsFunc(operatorstatus.Managers(o, conditionType), ours) {
			nodes, gone = append(nodes, node), append(gone, conditionType)
		}
	}
	if body := operatorstatus.Removal(o, gone); body != nil {
		_, err = s.patch(ctx, body, cleanupManager)
		if apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("remove reports of %s: %w", to, err)
		}
	}
	s.cleaned = s.target.Off
	for _, node := range nodes {
		s.Event(s.target.Name, corev1.EventTypeNormal, contract.EventReportRemoved,
			fmt.Sprintf("the report of node %s on %s, which no reporter writes any more", node, to))
	}
	return nil
}
