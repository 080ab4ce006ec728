package delivery

import (
	"fmt"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// ThirdPartyContainer is the name of the init container that a third-party operator adds
// to its API servers' pods.
const ThirdPartyContainer = "kms-health-reporter"

// Choice is the delivery chosen for a target, and why.
type Choice struct {
	Delivery v1alpha1.Delivery // empty: none
	Reason   Reason
	Message  string
}

// choose decides how the target's reporters are deployed. Only the pods' specs count,
// which the owner of the API server writes: a third-party writer of reports must not be
// able to stop the other reporters.
func (s *Snapshot) choose(pods []apiServerPod) Choice {
	if d := s.Target.Delivery; d != v1alpha1.DeliveryAuto {
		return Choice{d, Configured, fmt.Sprintf("%s, as configured", d)}
	}
	folders, onHost := 0, true
	for _, a := range pods {
		for _, c := range a.pod.Spec.InitContainers {
			if c.Name == ThirdPartyContainer {
				return Choice{"", ThirdPartyReporter, fmt.Sprintf("pod %s/%s has a third-party reporter, so none is added", a.pod.Namespace, a.pod.Name)}
			}
		}
		folders += len(a.Folders)
		onHost = onHost && sockets.OnHost(a.Folders)
	}
	switch {
	case folders == 0:
		if d := s.State.Delivery; d != "" {
			return Choice{d, AwaitingPods, fmt.Sprintf("%s, as before: no running pod shows where the sockets are", d)}
		}
		return Choice{"", AwaitingPods, "no running pod shows where the sockets are yet"}
	case onHost:
		return Choice{v1alpha1.DeliveryDaemonSet, SocketsOnHost, "DaemonSet: the sockets are in folders of the nodes"}
	default:
		return Choice{v1alpha1.DeliveryCompanion, SocketsInPods, "Companion: the sockets are in volumes of the API server's pods"}
	}
}
