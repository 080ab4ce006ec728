package apiserver

import (
	"fmt"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// Phase of a target. It is derived from a Snapshot only: the observed state counts, not the
// history.
type Phase string

const (
	// Waiting: too little is known to change anything, or reporters could write more than they may.
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
	phase  Phase         // any but Removing, which leads to Idle or Gone
	mode   v1alpha1.Mode // of an Active target
	status Status        // of an Active target, once all of it is there
	off    bool          // no reporter should report
	clean  bool          // the reports are removed, too
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
		return intent{phase: Idle, clean: true, status: Status{contract.NamespaceMissing,
			fmt.Sprintf("namespace %s does not exist", s.Target.Namespace)}}
	case s.Pods == nil || !s.setsKnown() || s.listing():
		return intent{phase: Waiting, status: p.waitingFor()}
	case s.off():
		return intent{phase: Idle, off: true, clean: true, status: Status{contract.Off,
			"no KMS plugin is configured, so nothing is delivered"}}
	case s.PolicyProblem != "" && len(s.own("ClusterRoleBinding")) == 0:
		return intent{phase: Waiting, status: Status{contract.PolicyMissing, s.PolicyProblem}}
	case len(s.CA) == 0 && s.CAProblem != "":
		return intent{phase: Waiting, status: Status{contract.CAUnreadable, s.CAProblem}}
	}
	if len(s.live()) == 0 && len(p.pods) == 0 && !p.pending && s.notProbed() != "" {
		return intent{phase: Idle, status: worst(p.problems)}
	}
	mode, status := s.choose(p.pods)
	switch {
	case mode == "" && p.pending:
		return intent{phase: Waiting, status: Status{contract.Progressing, ""}}
	case mode == "" && len(p.unplaced) > 0:
		return intent{phase: Idle, status: worst(p.problems)}
	case mode == "":
		return intent{phase: Idle, status: status}
	default:
		return intent{phase: Active, mode: mode, status: status}
	}
}

// choose decides how the target's reporters are deployed, and says why; empty: not yet. Only where
// the sockets are counts: reporters of other projects in the same pods change nothing.
func (s *Snapshot) choose(pods []apiServerPod) (v1alpha1.Mode, Status) {
	if m := s.Target.Mode; m != v1alpha1.ModeAuto {
		return m, Status{contract.AsExpected, fmt.Sprintf("%s: as configured", m)}
	}
	onHost := true // also an abstract socket, which has no folder
	for _, a := range pods {
		onHost = onHost && objects.OnHost(a.Folders)
	}
	switch {
	case len(pods) == 0 && s.State.Mode != "":
		return s.State.Mode, Status{contract.NoPods,
			fmt.Sprintf("%s: as before; no running pod shows where the sockets are", s.State.Mode)}
	case len(pods) == 0:
		return "", Status{contract.NoPods, "no running pod shows where the sockets are yet"}
	case onHost:
		return v1alpha1.ModeDaemonSet, Status{contract.AsExpected,
			"DaemonSet: the sockets are in folders of the nodes, or in their network"}
	default:
		return v1alpha1.ModeCompanionPod, Status{contract.AsExpected,
			"CompanionPod: the sockets are in volumes of the API server's pods"}
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

// switching reports whether reporters of another mode report.
func (s *State) switching(to v1alpha1.Mode) bool { return s.Mode != "" && s.Mode != to }

// checkAbstractSockets finds abstract sockets that pods of ours do not reach.
func (p *planner) checkAbstractSockets() {
	if p.Target.Mode.InOwnersPods() {
		return
	}
	for _, a := range p.pods {
		for _, endpoint := range objects.Endpoints(a.plugins) {
			if why := p.NotReachable(endpoint); why != "" {
				p.problem(contract.SocketVolumeMissing, why)
			}
		}
	}
}
