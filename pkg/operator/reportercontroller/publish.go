package reportercontroller

import (
	"context"
	"errors"
	"net"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Health is the controller of the roll-ups, as far as the reporters' one needs it.
type Health interface {
	// Set sets what is published of an API server; Remove removes that.
	Set(s delivery.Snapshot)
	Remove(name string)
	// IsDone reports whether nothing of an API server is left on its operator resource.
	IsDone(name string) bool
	// Silent are its reports that do not change; nil: that is not known yet.
	Silent(name string) map[string]rollup.Silence
}

// updatePublished updates what is published of an API server; if nothing was decided, that is its last known state. A
// process that has just started first reads what an earlier one knew: what that wrote stays until then.
func (c *Controller) updatePublished(s *Snapshot, e *serverState, plan *Plan) {
	p := &e.published
	decided := s.Problem == nil && !s.Unrecorded
	settled := decided && (s.Live != nil || s.Target.Plugins != nil || s.Deleting || s.NamespaceMissing)
	switch left := informers.AuthorizerWarmup - c.Clock.Since(c.began); {
	case s.Unrecorded && !e.status.Reason.NeedsAction():
		return // its conditions come after its record, unless that cannot be written
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
	// Until other sources have synced, as those of another podSelector, a roll-up of them would be without a verdict.
	if before := p.Sources; decided || before == nil {
		if p.APIServer, p.Sources = *s.Target, e.sources; before != nil && before != e.sources {
			before.Stop()
		}
	}
	p.OtherInstallation, p.Unmanaged = s.OtherInstallation != "", s.Unmanaged
	p.Tool = "oc"
	if decided && !s.OpenShift || c.OpenShift != nil && !*c.OpenShift {
		p.Tool = "kubectl"
	}
}

// publish hands the snapshot to the roll-up, once per sync.
func (c *Controller) publish(e *serverState) {
	if e.published.Name != "" {
		c.Health.Set(e.published)
	}
}

// report keeps a status: for metrics, Targets, and the roll-up, which has it in the
// target's condition. A status with an empty message is transient, and not reported.
//
// There is an Event only for a status that no condition has: where there is no operator
// resource, or nothing to report on it, except a first status of the latter kind.
func (c *Controller) report(e *serverState, s *Snapshot, o *Result) {
	c.metrics.set(e.target.Name, e.published.State.Mode, o)
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
	return &metrics{
		errors:    metric.CounterVec(registry, contract.MetricErrors),
		delivered: metric.GaugeVec(registry, contract.MetricDelivered),
		expiry:    metric.GaugeVec(registry, contract.MetricCredentialExpiry),
		renewal:   metric.GaugeVec(registry, contract.MetricCredentialRenewal),
	}
}

// set shows how a delivery stands, and when its token expires and is due. While a target is
// delivered, the outcome has the token, unless there is none; otherwise it stays as it was.
func (m *metrics) set(target string, mode v1alpha1.Mode, o *Result) {
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
