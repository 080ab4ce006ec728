package apiserver

import (
	"fmt"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// Choice is the delivery chosen for a target, and why.
type Choice struct {
	Mode    v1alpha1.Mode // empty: none
	Reason  Reason
	Message string
}

// choose decides how the target's reporters are deployed. Only where the sockets are
// counts: reporters of other projects in the same pods change nothing.
func (s *Snapshot) choose(pods []apiServerPod) Choice {
	if d := s.Target.Mode; d != v1alpha1.ModeAuto {
		return Choice{Mode: d, Reason: contract.AsExpected, Message: fmt.Sprintf("%s: as configured", d)}
	}
	onHost := true // also an abstract socket, which has no folder
	for _, a := range pods {
		onHost = onHost && objects.OnHost(a.Folders)
	}
	switch {
	case len(pods) == 0:
		if d := s.State.Mode; d != "" {
			return Choice{Mode: d, Reason: contract.NoPods, Message: fmt.Sprintf("%s: as before; no running pod shows where the sockets are", d)}
		}
		return Choice{Reason: contract.NoPods, Message: "no running pod shows where the sockets are yet"}
	case onHost:
		return Choice{Mode: v1alpha1.ModeDaemonSet, Reason: contract.AsExpected,
			Message: "DaemonSet: the sockets are in folders of the nodes, or in their network"}
	default:
		return Choice{Mode: v1alpha1.ModeCompanionPod, Reason: contract.AsExpected, Message: "CompanionPod: the sockets are in volumes of the API server's pods"}
	}
}

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
