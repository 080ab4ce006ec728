package delivery

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// Phase of a target's life. It is derived from a Snapshot only: the observed state counts,
// not the history.
type Phase string

const (
	// Blocked: another installation owns the target, or reporters could write more than
	// they may. Nothing is changed.
	Blocked Phase = "Blocked"
	// Waiting: too little is known to change anything.
	Waiting Phase = "Waiting"
	// Renewing: the target is Unmanaged. What expires is renewed, and nothing else
	// is changed.
	Renewing Phase = "Renewing"
	// Active: there are reporters.
	Active Phase = "Active"
	// Switching: reporters of another delivery, or with other credentials, are being
	// added. Those of before stay until the new ones report.
	Switching Phase = "Switching"

	// The target has no reporters. Each phase removes what nothing left needs.
	RemovingWorkloads  Phase = "RemovingWorkloads"
	RemovingMounts     Phase = "RemovingMounts"
	RemovingIdentities Phase = "RemovingIdentities"
	// RemovingReports: the roll-up removes the reports and its conditions.
	RemovingReports Phase = "RemovingReports"
	// RemovingDestination: the object that had the reports is removed, where the operator
	// created it.
	RemovingDestination Phase = "RemovingDestination"
	// Idle: KMS is off, or there are plugins, but none for an own reporter. The ClusterRole
	// is kept, which records the target.
	Idle Phase = "Idle"
	// Gone: the target is not configured any more. Only the ClusterRole and the condition
	// are left, and are removed.
	Gone Phase = "Gone"
)

// removal has the kinds that each phase of a removal deletes.
var removal = []struct {
	phase Phase
	kinds []string
}{
	{RemovingWorkloads, []string{"Pod", "DaemonSet"}},
	{RemovingMounts, []string{"ConfigMap"}},
	{RemovingIdentities, []string{"ServiceAccount", "ClusterRoleBinding", "Role"}},
}

// intent is the desired outcome for a target.
type intent struct {
	phase Phase // Blocked, Waiting, Renewing, Active, or a removal's last: Idle or Gone
	// choice is the delivery of an Active target.
	choice Choice
	status Status // of a target that is not Active
	off    bool   // no reporter should report
	clean  bool   // the reports are removed, too
}

// decide decides the intent for a target.
func (p *planner) decide() intent {
	s := p.Snapshot
	switch {
	case s.OtherInstallation != "":
		return intent{phase: Blocked, status: Status{OtherInstallation, s.OtherInstallation}}
	case s.Unmanaged:
		return intent{phase: Renewing}
	case s.Deleting:
		return intent{phase: Gone, off: true, clean: true, status: Status{Removed, "everything is removed"}}
	case s.NamespaceMissing:
		return intent{phase: Idle, clean: true, status: Status{TargetNamespaceMissing, fmt.Sprintf("namespace %s does not exist", s.Target.Namespace)}}
	case s.Pods == nil || !s.setsKnown() || s.listing():
		return intent{phase: Waiting, status: p.waitingFor()}
	case s.off():
		return intent{phase: Idle, off: true, clean: true, status: Status{Off, "no KMS plugin is configured, so nothing is delivered"}}
	case s.PolicyProblem != "" && len(s.own("ClusterRoleBinding")) == 0:
		return intent{phase: Blocked, status: Status{PolicyMissing, s.PolicyProblem}}
	case len(s.CA) == 0 && s.CAProblem != "":
		return intent{phase: Waiting, status: Status{CAUnreadable, s.CAProblem}}
	}
	choice := s.choose(p.pods)
	switch {
	case s.ConfigMapsPending && s.Target.ConfigSource == v1alpha1.ConfigSourceAuto && choice.Delivery != "" && !choice.Delivery.InOwnersPods():
		return intent{phase: Waiting, status: Status{AwaitingSources, ""}}
	case choice.Delivery == "" && p.pending:
		return intent{phase: Waiting, status: Status{AwaitingSources, ""}}
	case choice.Delivery == "":
		return intent{phase: Idle, status: Status{choice.Reason, choice.Message}}
	default:
		return intent{phase: Active, choice: choice}
	}
}

// waitingFor is the status of a target of which too little is known. An empty message
// means a transient state.
func (p *planner) waitingFor() Status {
	if e := p.Encryption; e != nil && e.Problem != "" {
		return Status{EncryptionConfigUnreadable, e.Problem}
	}
	if len(p.SourceProblems) > 0 {
		return worst(p.SourceProblems)
	}
	return Status{AwaitingSources, ""}
}

// removalPhase is how far the removal of a target without reporters has come: the first
// phase in which something is left, else that of the intent, which is Idle or Gone.
// unknown is a kind that cannot be listed yet.
func (s *Snapshot) removalPhase(i intent) (phase Phase, unknown string) {
	if s.injected() {
		return RemovingWorkloads, ""
	}
	for _, r := range removal {
		for _, kind := range r.kinds {
			if !s.OwnKnown[kind] {
				return r.phase, kind
			}
		}
		if r.phase == RemovingMounts && len(s.State.Secrets) > 0 && !s.NamespaceMissing || slices.ContainsFunc(s.Own, func(o *unstructured.Unstructured) bool {
			return slices.Contains(r.kinds, o.GetKind()) && !s.keeps(o)
		}) {
			return r.phase, ""
		}
	}
	switch {
	case !i.clean:
		return i.phase, ""
	case !s.OwnKnown["ClusterRole"]:
		return RemovingReports, "ClusterRole"
	case s.ReportsLeft:
		return RemovingReports, ""
	case i.phase == Gone && s.Resource != nil && s.ReportsTo().PerTarget():
		return RemovingDestination, ""
	default:
		return i.phase, ""
	}
}

// listing reports whether what exists of ours will be known in a moment. What cannot be
// listed is not waited for.
func (s *Snapshot) listing() bool {
	for kind, known := range s.OwnKnown {
		if !known && s.OwnProblems[kind] == "" {
			return true
		}
	}
	return false
}

// keeps reports whether an object stays while KMS is off: by the Role the operator
// reads the target's Secret, since KMS may be turned on.
func (s *Snapshot) keeps(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Role" && !s.Deleting && s.Target.Plugins == nil
}

// injected reports whether a Deployment has the reporter: as it shows, unless that is
// an old view.
func (s *Snapshot) injected() bool {
	d, was := s.Deployment, s.State.Injected
	unseen := d != nil && was != nil && string(d.UID) == was.UID && d.Generation < was.Generation
	return d != nil && (s.Injected || unseen)
}

// switching reports whether other reporters than those of the choice report.
func (s *State) switching(choice v1alpha1.Delivery, credentials v1alpha1.Credentials) bool {
	return s.Delivery != "" && (s.Delivery != choice || s.Credentials != credentials)
}
