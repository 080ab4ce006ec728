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
	// ConfigSource is ConfigMap or Annotation.
	ConfigSource v1alpha1.ConfigSource
	Reason       Reason
	Message      string
}

// choose decides how the target's reporters are deployed, and how they get their file.
func (s *Snapshot) choose(pods []apiServerPod) Choice {
	c := s.chooseDelivery(pods)
	source, why := s.configSource(c.Delivery)
	c.ConfigSource = source
	if c.Delivery != "" && why != "" {
		c.Message += fmt.Sprintf("; configSource %s: %s", source, why)
	}
	return c
}

// chooseDelivery decides how the target's reporters are deployed. Only the pods' specs count,
// which the owner of the API server writes: a third-party writer of reports must not be
// able to stop the other reporters.
func (s *Snapshot) chooseDelivery(pods []apiServerPod) Choice {
	if d := s.Target.Delivery; d != v1alpha1.DeliveryAuto {
		return Choice{Delivery: d, Reason: Configured, Message: fmt.Sprintf("%s, as configured", d)}
	}
	folders, onHost := 0, true
	for _, a := range pods {
		for _, c := range a.pod.Spec.InitContainers {
			if c.Name == ThirdPartyContainer {
				return Choice{Reason: ThirdPartyReporter, Message: fmt.Sprintf("pod %s/%s has a third-party reporter, so none is added", a.pod.Namespace, a.pod.Name)}
			}
		}
		folders += len(a.Folders)
		onHost = onHost && sockets.OnHost(a.Folders)
	}
	switch {
	case folders == 0:
		if d := s.State.Delivery; d != "" {
			return Choice{Delivery: d, Reason: AwaitingPods, Message: fmt.Sprintf("%s, as before: no running pod shows where the sockets are", d)}
		}
		return Choice{Reason: AwaitingPods, Message: "no running pod shows where the sockets are yet"}
	case onHost:
		return Choice{Delivery: v1alpha1.DeliveryDaemonSet, Reason: SocketsOnHost, Message: "DaemonSet: the sockets are in folders of the nodes"}
	default:
		return Choice{Delivery: v1alpha1.DeliveryCompanion, Reason: SocketsInPods, Message: "Companion: the sockets are in volumes of the API server's pods"}
	}
}
