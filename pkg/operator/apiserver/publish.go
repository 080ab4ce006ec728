package apiserver

import (
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

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
	// Pending are revisions whose plugin set will be known soon.
	Pending map[string]bool
	// Status is how the delivery stands. Zero: not known yet, or there is nothing to report.
	Status Status
	// Off means that no reporter should report any more; Clean, that no own reporter can.
	Off, Clean bool
	// Superseded means that another target has the resource now, or another installation
	// the target: nothing of it is read or written.
	Superseded bool
	// Unmanaged means that no report is to be removed.
	Unmanaged bool
	// NamespaceMissing means that the target's namespace does not exist.
	NamespaceMissing bool
	// OnlyNodeServer means that the reporters write through the kube-apiserver of their own
	// node, and have no other.
	OnlyNodeServer bool
	// Tool is the command line tool in messages: oc or kubectl.
	Tool string
}

// publish sends the state of a target to the roll-up; if nothing was decided, the last
// known state.
func (c *Controller) publish(config *v1alpha1.OperatorConfiguration, l life, e *entry, s *Snapshot, plan *Plan) {
	p := e.published
	if p.Name == "" && plan == nil {
		if !c.cluster.Roles.Known() && c.cluster.Roles.Err() == nil {
			return // in a moment
		}
		p.State, p.SetsKnown = l.state, l.state.Live != nil
	}
	if plan != nil {
		p.State, p.SetsKnown, p.Pending = plan.State, plan.SetsKnown, plan.Pending
		p.LiveKnown = s.liveKnown()
		p.Off, p.Clean, p.NamespaceMissing = plan.Off, plan.Clean, s.NamespaceMissing
		p.OnlyNodeServer = s.OnlyNodeServer()
	}
	p.APIServer, p.Sources = l.target, e.sources
	p.Superseded = l.superseded || l.otherInstallation != ""
	p.Unmanaged = config.ManagementState == v1alpha1.Unmanaged
	p.Tool = "oc"
	if s != nil && !s.OpenShift || c.OpenShift != nil && !*c.OpenShift {
		p.Tool = "kubectl"
	}
	e.published = p
	c.Rollup.Set(p)
}
