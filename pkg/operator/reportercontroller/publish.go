package reportercontroller

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// Health is what the reporters' controller needs of the controller of the roll-ups.
type Health interface {
	// Set publishes the snapshot of an API server; Remove removes it.
	Set(s delivery.Snapshot)
	Remove(name string)
	// Verdict returns the last verdict of an API server.
	Verdict(name string) delivery.Verdict
}

// publish passes a snapshot of an API server to the roll-up, once per sync. If nothing was decided, it keeps the last
// known state. A process that has just started publishes nothing before it has read the plugin set, for at most
// AuthorizerWarmup. So the conditions of the process before stay until then.
func (c *Controller) publish(s *Snapshot, e *serverState, plan *Plan) {
	p := &e.published
	decided := !s.Undecided && !s.Unrecorded
	settled := decided && (s.Sets != nil || s.Target.Plugins != nil || s.Deleting || s.NamespaceMissing)
	switch left := informers.AuthorizerWarmup - time.Since(c.began); {
	case s.Unrecorded && !e.status.Reason.NeedsAction():
		return // conditions come after the record, unless that cannot be written
	case p.Name == "" && !settled && left > 0:
		c.Queue.AddAfter(s.Target.Name, left) // if nothing is read until then
		return
	case decided:
		p.State, p.SetsKnown, p.LiveKnown = plan.State, plan.State.Live != nil, s.liveKnown()
		p.Off, p.Clean, p.NamespaceMissing, p.Served = plan.Off, plan.Clean, s.NamespaceMissing, plan.Served
	case p.Name == "" || e.deleting != s.Deleting:
		p.State, p.SetsKnown, p.LiveKnown = s.State, s.State.Live != nil, false
		p.Off, p.Clean = s.Deleting && !s.Unmanaged, false
	}
	e.deleting = s.Deleting
	// New informers, as for another podSelector, are published once they have synced: before, the roll-up would have no
	// verdict.
	if before := p.Sources; decided || before == nil {
		if p.APIServer, p.Sources = *s.Target, e.sources; before != nil && before != e.sources {
			before.Stop()
		}
	}
	p.OtherInstallation, p.Unmanaged = s.OtherInstallation != "", s.Unmanaged
	c.Health.Set(*p)
}

// report keeps a status for metrics, Targets, and the roll-up, which puts it into the target's condition. A status
// with an empty message is transient, and is not kept.
//
// An Event is recorded only if no condition has the status: there is no operator resource, another installation owns
// the target, or the result has NoCondition. With NoCondition, the first status has no Event.
func (c *Controller) report(e *serverState, s *Snapshot, o *Result) {
	c.metrics.set(e.target.Name, o)
	if o.Status.Message == "" {
		return
	}
	c.mu.Lock()
	before := e.status
	e.status = o.Status
	c.mu.Unlock()
	if e.published.Status = o.Status; o.NoCondition {
		e.published.Status = delivery.Status{}
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
		c.ClusterOperator.Enqueue(contract.ClusterOperator)
	}
}

// unreachable reports whether an error shows that the API server did not answer any request. All targets then have
// the same problem. It is logged, and is no status of one target. A request that ended at its deadline does not show
// that, unless it was still connecting: an admission webhook may be hanging for this object only.
func unreachable(err error) bool {
	failed, answer, connecting := (*url.Error)(nil), apierrors.APIStatus(nil), (*net.OpError)(nil)
	return errors.As(err, &failed) && !errors.As(err, &answer) &&
		(!errors.Is(err, context.DeadlineExceeded) || errors.As(err, &connecting))
}

// metrics of the deliveries.
type metrics struct {
	errors    *prometheus.CounterVec
	delivered *prometheus.GaugeVec
	tokens    sync.Map         // the validity by target
	now       func() time.Time // by the API server's clock
}

func newMetrics(registry prometheus.Registerer, now func() time.Time) *metrics {
	m := &metrics{
		errors:    metric.CounterVec(registry, contract.MetricErrors),
		delivered: metric.GaugeVec(registry, contract.MetricDelivered),
		now:       now,
	}
	registry.MustRegister(prometheus.CollectorFunc(m.collectTokens))
	return m
}

// collectTokens sends durations by the API server's clock, since rules compare times with Prometheus' clock.
func (m *metrics) collectTokens(ch chan<- prometheus.Metric) {
	for target, token := range m.tokens.Range {
		now, target, token := m.now().Round(0), target.(string), token.(validity) // wall clock: the monotonic one differs
		gauge := func(of contract.Metric, value time.Duration) {
			ch <- prometheus.MustNewConstMetric(
				metric.Desc(of), prometheus.GaugeValue, value.Seconds(), target, objects.TokenName(target))
		}
		gauge(contract.MetricCredentialRemaining, token.notAfter.Sub(now))
		gauge(contract.MetricCredentialOverdue, max(0, now.Sub(token.renewAt)))
	}
}

// set sets the status of a delivery, and its token. The result of a complete delivery has the token, unless there is
// none. After any other result the series of the earlier token stay.
func (m *metrics) set(target string, o *Result) {
	if o.Status.Delivered() && o.Status.Reason != contract.Unmanaged {
		m.forget(target)
	}
	if !o.Token.notAfter.IsZero() {
		m.tokens.Store(target, o.Token)
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
	m.delivered.WithLabelValues(target, string(o.Recorded.State.Mode), string(o.Status.Reason)).Set(value)
}

// forget removes the series of a target that is gone.
func (m *metrics) forget(target string) {
	m.delivered.DeletePartialMatch(prometheus.Labels{"api_server": target})
	m.tokens.Delete(target)
}
