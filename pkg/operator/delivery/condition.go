package delivery

import (
	"context"

	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// conditionManager owns the condition and nothing else: two applies under one
// manager would each remove what the other wrote.
const conditionManager = "kms-health-operator-delivery"

// writeCondition writes the condition of a target's delivery, unless it stands.
func (c *Controller) writeCondition(ctx context.Context, s *Snapshot, status Status) error {
	condition := operatorcr.Condition{Type: ConditionType, Status: status.Condition(), Reason: string(status.Reason), Message: status.Message}
	return c.applyConditions(ctx, s, condition)
}

// removeCondition removes it.
func (c *Controller) removeCondition(ctx context.Context, s *Snapshot) error {
	if s.Superseded {
		return nil
	}
	return c.applyConditions(ctx, s)
}

func (c *Controller) applyConditions(ctx context.Context, s *Snapshot, conditions ...operatorcr.Condition) error {
	if s.Resource == nil {
		return nil
	}
	object := apply.ObjectOf(operatorcr.Of(string(s.Target.Resource)))
	standing, _ := c.status.Standing(object, apply.Standing{Version: s.Resource.Version, Conditions: s.Resource.Conditions})
	for i := range conditions {
		conditions[i].Settle(standing.Conditions, s.Now)
	}
	_, err := c.status.Apply(ctx, object, standing, conditions, nil)
	return err
}
