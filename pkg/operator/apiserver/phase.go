package apiserver

import (
	"fmt"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Phase of a target's life. It is derived from a Snapshot only: the observed state counts,
// not the history.
type Phase string

const (
	// Blocked: reporters could write more than they may. Nothing is changed.
	Blocked Phase = "Blocked"
	// Waiting: too little is known to change anything.
	Waiting Phase = "Waiting"
	// Renewing: the target is Unmanaged. What expires is renewed, and nothing else
	// is changed.
	Renewing Phase = "Renewing"
	// Active: there are reporters.
	Active Phase = "Active"
	// Removing: the target has no reporters, and something is left of them.
	Removing Phase = "Removing"
	// Idle: KMS is off, the namespace does not exist, or no pod shows yet where the sockets
	// are. The ClusterRole is kept, which records the target.
	Idle Phase = "Idle"
	// Gone: the target is not configured any more. Only the ClusterRole and the condition
	// are left, and are removed.
	Gone Phase = "Gone"
)

// intent is the desired outcome for a target.
type intent struct {
	phase Phase // any but Removing, which leads to Idle or Gone
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
	case s.Unmanaged:
		return intent{phase: Renewing}
	case s.Deleting:
		return intent{phase: Gone, off: true, clean: true, status: Status{contract.Removed, "everything is removed"}}
	case s.NamespaceMissing:
		return intent{phase: Idle, clean: true, status: Status{contract.NamespaceMissing, fmt.Sprintf("namespace %s does not exist", s.Target.Namespace)}}
	case s.Pods == nil || !s.setsKnown() || s.listing():
		return intent{phase: Waiting, status: p.waitingFor()}
	case s.off():
		return intent{phase: Idle, off: true, clean: true, status: Status{contract.Off, "no KMS plugin is configured, so nothing is delivered"}}
	case s.PolicyProblem != "" && len(s.own("ClusterRoleBinding")) == 0:
		return intent{phase: Blocked, status: Status{contract.PolicyMissing, s.PolicyProblem}}
	case len(s.CA) == 0 && s.CAProblem != "":
		return intent{phase: Waiting, status: Status{contract.CAUnreadable, s.CAProblem}}
	}
	if len(s.live()) == 0 && len(p.pods) == 0 && !p.pending && s.notProbed() != "" {
		return intent{phase: Idle, status: worst(p.problems)}
	}
	choice := s.choose(p.pods)
	switch {
	case choice.Mode == "" && p.pending:
		return intent{phase: Waiting, status: Status{contract.Progressing, ""}}
	case choice.Mode == "" && len(p.unplaced) > 0:
		return intent{phase: Idle, status: worst(p.problems)}
	case choice.Mode == "":
		return intent{phase: Idle, status: Status{choice.Reason, choice.Message}}
	default:
		return intent{phase: Active, choice: choice}
	}
}

// waitingFor is the status of a target of which too little is known. An empty message
// means a transient state.
func (p *planner) waitingFor() Status {
	if e := p.Encryption; e != nil && e.Problem != "" {
		return Status{contract.EncryptionConfigUnreadable, e.Problem}
	}
	if len(p.SourceProblems) > 0 {
		return worst(p.SourceProblems)
	}
	return Status{contract.Progressing, ""}
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

// injected reports whether a Deployment has the reporter: as it shows, unless that is
// an old view.
func (s *Snapshot) injected() bool {
	d, was := s.Deployment, s.State.Injected
	unseen := d != nil && was != nil && string(d.UID) == was.UID && d.Generation < was.Generation
	return d != nil && (s.Injected || unseen)
}

// switching reports whether other reporters than those of the choice report.
func (s *State) switching(choice v1alpha1.Mode) bool {
	return s.Mode != "" && s.Mode != choice
}
