package delivery

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// conditionManager owns the condition and nothing else: two applies under one
// manager would each remove what the other wrote.
const conditionManager = "kms-health-operator-delivery"

// writeCondition writes the condition of a target's delivery, unless it stands; nil
// removes it. On a resource that another target or installation has, nothing is written.
func (c *Controller) writeCondition(ctx context.Context, s *Snapshot, status *Status) error {
	if s.Superseded || s.Resource == nil {
		return nil
	}
	var conditions []operatorcr.Condition
	if status != nil {
		conditions = []operatorcr.Condition{{Type: ConditionType, Status: status.Condition(), Reason: string(status.Reason), Message: status.Message}}
	}
	object := apply.ObjectOf(s.ReportsTo())
	standing, _ := c.status.Standing(object, apply.Standing{Version: s.Resource.Version, Conditions: s.Resource.Conditions})
	for i := range conditions {
		conditions[i].Settle(standing.Conditions, s.Now)
	}
	_, err := c.status.Apply(ctx, object, standing, conditions, nil)
	return err
}

// conditionNeedsAction reports whether the current condition requires action by an
// administrator.
func conditionNeedsAction(s *Snapshot) bool {
	if s.Resource == nil {
		return false
	}
	return Reason(s.Resource.Conditions[ConditionType].Reason).NeedsAction()
}

// answerTimeout is for how long another request is waited for after one that had no answer in
// its own time: longer than it takes to notice that a connection is lost.
const answerTimeout = 20 * time.Second

// unanswered reports whether the API server did not answer: all targets have that
// problem, which is logged, and none of them can be reported by it. A request that was cut
// off by its deadline may be slow alone, as by an admission webhook that hangs: then the API
// server answers another one.
func (c *Controller) unanswered(ctx context.Context, err error) bool {
	if !unanswered(err) {
		return false
	}
	connecting := (*net.OpError)(nil)
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &connecting) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err = c.Client.Resource(source.ClusterRoles).List(ctx, metav1.ListOptions{LabelSelector: manifests.Ours, Limit: 1})
	return unanswered(err)
}

// unanswered reports whether no request had an answer, and one failed.
func unanswered(err error) bool {
	failed, answer := (*url.Error)(nil), apierrors.APIStatus(nil)
	return errors.As(err, &failed) && !errors.As(err, &answer)
}

// report publishes a status: in metrics, and by Statuses. A status with an empty message
// is transient, and not reported. There is no Event for a status that an earlier process
// reported, according to the condition, nor for a first status without a condition.
func (c *Controller) report(e *entry, s *Snapshot, o *Outcome) {
	c.metrics.credentials(e.target.Name, o)
	if o.Status.Message == "" {
		return
	}
	c.mu.Lock()
	before := e.status
	e.status = o.Status
	c.mu.Unlock()
	c.metrics.deliver(e.target.Name, string(e.published.State.Delivery), o.Status)
	if before == o.Status {
		return
	}
	reported := before.Reason
	switch {
	case reported != "":
	case o.NoCondition:
		reported = o.Status.Reason
	case s.Resource != nil:
		reported = Reason(s.Resource.Conditions[ConditionType].Reason)
	}
	if reported != o.Status.Reason {
		c.Event(e.target.Name, o.Status.Reason.EventType(), string(o.Status.Reason), o.Status.Message)
	}
	c.Changed()
}

// Statuses are the states of the deliveries, by target.
func (c *Controller) Statuses() map[string]Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]Status, len(c.targets))
	for name, e := range c.targets {
		all[name] = e.status
	}
	return all
}
