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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// EventType is that of an Event with this reason.
func (r Reason) EventType() string {
	if r.NeedsAction() {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
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

// publish sends the state of a target to the roll-up; if nothing was decided, the last
// known state.
func (c *Controller) publish(s *Observed, e *entry, plan *Desired) {
	p := &e.published
	if left := Starting - c.Clock.Since(c.began); p.Name == "" && left > 0 && s.halfKnown() {
		c.queue.AddAfter(s.Target.Name, left) // if nothing is read until then
		return                                // what an earlier process wrote stays until this one knows as much
	}
	decided := plan != nil && s.Problem == nil && !s.Unrecorded // its conditions come after its record
	switch {
	case decided:
		p.State, p.SetsKnown, p.LiveKnown = plan.State, plan.State.Live != nil, s.liveKnown()
		p.Off, p.Clean, p.NamespaceMissing = plan.Off, plan.Clean, s.NamespaceMissing
	case p.Name == "" && !c.cluster.Roles.Known() && c.cluster.Roles.Err() == nil:
		return // in a moment
	case p.Name == "":
		p.State, p.SetsKnown = s.State, s.State.Live != nil
	}
	p.APIServer, p.Sources = *s.Target, e.sources
	p.OtherInstallation = s.OtherInstallation != ""
	p.Unmanaged = s.Config.ManagementState == v1alpha1.Unmanaged
	p.Tool = "oc"
	if decided && !s.OpenShift || c.OpenShift != nil && !*c.OpenShift {
		p.Tool = "kubectl"
	}
	c.Rollup.Set(*p)
}

// halfKnown reports whether something that an earlier process knew is about to be read.
func (s *Observed) halfKnown() bool {
	switch {
	case len(s.SourceProblems) > 0:
		return false
	case s.Problem != nil:
		return s.Problem.Message == ""
	}
	return s.State.Live != nil && s.Target.Plugins == nil && !s.Deleting && s.Encryption == nil
}

// report publishes a status: in metrics, by Statuses, and to the roll-up, which has it in the
// target's condition. A status with an empty message is transient, and not reported.
//
// There is an Event only for a status that no condition has: where there is no operator
// resource, or nothing to report on it, except a first status of the latter kind.
func (c *Controller) report(e *entry, s *Observed, o *Outcome) {
	c.metrics.credentials(e.target.Name, o)
	if o.Status.Message == "" {
		return
	}
	c.mu.Lock()
	before := e.status
	e.status = o.Status
	c.mu.Unlock()
	c.metrics.deliver(e.target.Name, string(e.published.State.Mode), o.Status)
	if p := &e.published; p.Name != "" {
		p.Status = Status{}
		if !o.NoCondition {
			p.Status = o.Status
		}
		c.Rollup.Set(*p)
	}
	if before == o.Status {
		return
	}
	missing := s.Resource == nil || s.OtherInstallation != ""
	if missing && before.Reason != o.Status.Reason || o.NoCondition && before.Reason != "" &&
		before.Reason != o.Status.Reason {
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
	if unreachable(err) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err = c.Client.Resource(source.ClusterRoles).List(ctx,
		metav1.ListOptions{LabelSelector: contract.Managed, Limit: 1})
	return unanswered(err)
}

// unanswered reports whether no request had an answer, and one failed.
func unanswered(err error) bool {
	failed, answer := (*url.Error)(nil), apierrors.APIStatus(nil)
	return errors.As(err, &failed) && !errors.As(err, &answer)
}

// unreachable reports whether the API server did not answer, rather than that a request was cut
// off by its deadline, which may be slow alone.
func unreachable(err error) bool {
	connecting := (*net.OpError)(nil)
	return unanswered(err) && (!errors.Is(err, context.DeadlineExceeded) || errors.As(err, &connecting))
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

func (m *metrics) deliver(target, delivery string, s Status) {
	m.errors.WithLabelValues(target) // 0 until there is one
	m.delivered.DeletePartialMatch(prometheus.Labels{"api_server": target})
	value := 0.0
	if s.Delivered() {
		value = 1
	}
	m.delivered.WithLabelValues(target, delivery, string(s.Reason)).Set(value)
}

// credentials shows when the token of a target expires and is due. While a target is delivered,
// the outcome has it, unless there is none; otherwise it stays as it was.
func (m *metrics) credentials(target string, o *Outcome) {
	if o.Status.Delivered() && o.Status.Reason != contract.Unmanaged {
		m.forgetCredentials(target)
	}
	if secret := objects.TokenName(target); !o.Expires.IsZero() {
		m.expiry.WithLabelValues(target, secret).Set(float64(o.Expires.Unix()))
		m.renewal.WithLabelValues(target, secret).Set(float64(o.RenewAt.Unix()))
	}
}

func (m *metrics) forgetCredentials(target string) {
	m.expiry.DeletePartialMatch(prometheus.Labels{"api_server": target})
	m.renewal.DeletePartialMatch(prometheus.Labels{"api_server": target})
}

// forget removes the series of a target that is gone.
func (m *metrics) forget(target string) {
	m.delivered.DeletePartialMatch(prometheus.Labels{"api_server": target})
	m.forgetCredentials(target)
}
