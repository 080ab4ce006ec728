package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

// Reason of a delivery's status: one of contract.RollupReasons.
type Reason string

// NeedsAction reports whether an administrator must act.
func (r Reason) NeedsAction() bool {
	return r != "" && contract.RollupReasonOf(string(r)).NeedsAction
}

// Status of a delivery, or a problem that keeps it from being complete. The zero Status is not
// known yet.
type Status struct {
	Reason  Reason
	Message string
}

// Delivered reports whether nothing is left to be done.
func (s Status) Delivered() bool {
	return s.Reason == contract.AsExpected || s.Reason == contract.Unmanaged || s.Reason == contract.Off ||
		s.Reason == contract.Removed
}

// ifNeedsAction is the status if an administrator must act, else none.
func (s Status) ifNeedsAction() []Status {
	if s.Reason.NeedsAction() {
		return []Status{s}
	}
	return nil
}

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 2048

// worst is the status of several problems: the most severe reason, and all messages,
// its own first.
func worst(problems []Status) Status {
	sorted := slices.Clone(problems)
	rank := func(s Status) int { return contract.Severity(string(s.Reason)) }
	slices.SortStableFunc(sorted, func(a, b Status) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.Message, b.Message))
	})
	sorted = slices.Compact(sorted)
	var messages []string
	for _, p := range sorted {
		text := p.Message
		if p.Reason != sorted[0].Reason { // the first one is the condition's reason
			text = fmt.Sprintf("%s: %s", p.Reason, p.Message)
		}
		messages = append(messages, text)
	}
	return Status{sorted[0].Reason, join(messages)}
}

func join(lines []string) string { return contract.Cut(strings.Join(lines, "; "), maxMessage) }

// Rollup is the controller of the roll-ups, as far as deliveries need it.
type Rollup interface {
	// Set sets the published state of a target; Remove removes the target.
	Set(t Published)
	Remove(name string)
	// IsDone reports whether nothing of a target is left on its operator resource.
	IsDone(name string) bool
	// Wake wakes the roll-up of a target.
	Wake(name string)
}

// Published is what the roll-up of a target needs of its delivery.
type Published struct {
	v1alpha1.APIServer
	Sources *source.Target
	// State has the last known plugin sets; SetsKnown means that they are known.
	State     State
	SetsKnown bool
	// LiveKnown means that the live set is as it was read, not as it was recorded.
	LiveKnown bool
	// Status is how the delivery stands. Zero: not known yet, or there is nothing to report.
	Status Status
	// Off means that no reporter should report any more; Clean, that no own reporter can.
	Off, Clean bool
	// OtherInstallation means that one owns the target: nothing of it is read or written.
	OtherInstallation bool
	// Unmanaged means that no report is to be removed.
	Unmanaged bool
	// NamespaceMissing means that the target's namespace does not exist.
	NamespaceMissing bool
	// Tool is the command line tool in messages: oc or kubectl.
	Tool string
}

// publish sends the state of a target to the roll-up; if nothing was decided, the last known
// state. A process that has just started first reads what an earlier one knew: what that wrote
// stays until then.
func (c *Controller) publish(s *Observed, e *entry, plan *Desired) {
	p := &e.published
	decided := s.Problem == nil && !s.Unrecorded
	settled := decided && (s.Live != nil || s.Target.Plugins != nil || s.Deleting || s.NamespaceMissing)
	switch left := Starting - c.Clock.Since(c.began); {
	case s.Unrecorded && !e.status.Reason.NeedsAction():
		return // its conditions come after its record, unless that cannot be written
	case p.Name == "" && !settled && left > 0:
		c.queue.AddAfter(s.Target.Name, left) // if nothing is read until then
		return
	case decided:
		p.State, p.SetsKnown, p.LiveKnown = plan.State, plan.State.Live != nil, s.liveKnown()
		p.Off, p.Clean, p.NamespaceMissing = plan.Off, plan.Clean, s.NamespaceMissing
	case p.Name == "" || e.deleting != s.Deleting:
		p.State, p.SetsKnown, p.LiveKnown = s.State, s.State.Live != nil, false
		p.Off, p.Clean = s.Deleting && !s.Unmanaged, false
	}
	e.deleting = s.Deleting
	p.APIServer, p.Sources = *s.Target, e.sources
	p.OtherInstallation, p.Unmanaged = s.OtherInstallation != "", s.Unmanaged
	p.Tool = "oc"
	if decided && !s.OpenShift || c.OpenShift != nil && !*c.OpenShift {
		p.Tool = "kubectl"
	}
	c.Rollup.Set(*p)
}

// report publishes a status: in metrics, by Statuses, and to the roll-up, which has it in the
// target's condition. A status with an empty message is transient, and not reported.
//
// There is an Event only for a status that no condition has: where there is no operator
// resource, or nothing to report on it, except a first status of the latter kind.
func (c *Controller) report(e *entry, s *Observed, o *Outcome) {
	c.metrics.set(e.target.Name, e.published.State.Mode, o)
	if o.Status.Message == "" {
		return
	}
	c.mu.Lock()
	before := e.status
	e.status = o.Status
	c.mu.Unlock()
	if p := &e.published; p.Name != "" {
		if p.Status = o.Status; o.NoCondition {
			p.Status = Status{}
		}
		c.Rollup.Set(*p)
	}
	if before.Reason != o.Status.Reason &&
		(s.Resource == nil || s.OtherInstallation != "" || o.NoCondition && before.Reason != "") {
		eventType := corev1.EventTypeNormal
		if o.Status.Reason.NeedsAction() {
			eventType = corev1.EventTypeWarning
		}
		c.Event(e.target.Name, eventType, string(o.Status.Reason), o.Status.Message)
	}
	if before != o.Status {
		c.Changed()
	}
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

// unreachable reports whether no request had an answer, and one failed: all targets have that
// problem, which is logged, and none of them can be reported by it. A request that was cut off by
// its deadline may be slow alone, as by an admission webhook that hangs.
func unreachable(err error) bool {
	failed, answer, connecting := (*url.Error)(nil), apierrors.APIStatus(nil), (*net.OpError)(nil)
	return errors.As(err, &failed) && !errors.As(err, &answer) &&
		(!errors.Is(err, context.DeadlineExceeded) || errors.As(err, &connecting))
}

// metrics of the deliveries.
type metrics struct {
	errors    *prometheus.CounterVec
	delivered *prometheus.GaugeVec
	expiry    *prometheus.GaugeVec
	renewal   *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		errors:    metric.CounterVec(contract.MetricErrors),
		delivered: metric.GaugeVec(contract.MetricDelivered),
		expiry:    metric.GaugeVec(contract.MetricCredentialExpiry),
		renewal:   metric.GaugeVec(contract.MetricCredentialRenewal),
	}
	registry.MustRegister(m.errors, m.delivered, m.expiry, m.renewal)
	return m
}

// set shows how a delivery stands, and when its token expires and is due. While a target is
// delivered, the outcome has the token, unless there is none; otherwise it stays as it was.
func (m *metrics) set(target string, mode v1alpha1.Mode, o *Outcome) {
	if o.Status.Delivered() && o.Status.Reason != contract.Unmanaged {
		m.forget(target)
	}
	if secret := objects.TokenName(target); !o.Token.notAfter.IsZero() {
		m.expiry.WithLabelValues(target, secret).Set(float64(o.Token.notAfter.Unix()))
		m.renewal.WithLabelValues(target, secret).Set(float64(o.Token.renewAt.Unix()))
	}
	if o.Status.Message == "" {
		return
	}
	m.errors.WithLabelValues(target) // 0 until there is one
	value := 0.0
	if o.Status.Delivered() {
		value = 1
	}
	m.delivered.DeletePartialMatch(prometheus.Labels{"api_server": target})
	m.delivered.WithLabelValues(target, string(mode), string(o.Status.Reason)).Set(value)
}

// forget removes the series of a target that is gone.
func (m *metrics) forget(target string) {
	for _, gauge := range []*prometheus.GaugeVec{m.delivered, m.expiry, m.renewal} {
		gauge.DeletePartialMatch(prometheus.Labels{"api_server": target})
	}
}
