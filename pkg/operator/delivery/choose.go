package delivery

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// ThirdPartyContainer is the name of the init container that a third-party operator adds
// to its API servers' pods.
const ThirdPartyContainer = "kms-health-reporter"

// hasThirdParty reports whether a pod has a third-party reporter.
func hasThirdParty(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == ThirdPartyContainer })
}

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
// able to stop the other reporters. While a rollout adds a third-party reporter to the
// pods, or removes it, the pods without it have a reporter of ours.
func (s *Snapshot) chooseDelivery(pods []apiServerPod) Choice {
	if d := s.Target.Delivery; d != v1alpha1.DeliveryAuto {
		return Choice{Delivery: d, Reason: Configured, Message: fmt.Sprintf("%s, as configured", d)}
	}
	folders, onHost, served := 0, true, 0
	for _, a := range pods {
		if a.thirdParty {
			served++
		}
		folders += len(a.Folders)
		onHost = onHost && sockets.OnHost(a.Folders)
	}
	if served > 0 && served == len(pods) {
		return Choice{Reason: ThirdPartyReporter, Message: "every pod has a third-party reporter, so none is added"}
	}
	others := ""
	if served > 0 {
		others = fmt.Sprintf("; pods with a third-party reporter: %d of %d", served, len(pods))
	}
	switch {
	case folders == 0:
		if d := s.State.Delivery; d != "" {
			return Choice{Delivery: d, Reason: AwaitingPods, Message: fmt.Sprintf("%s, as before: no running pod shows where the sockets are", d)}
		}
		return Choice{Reason: AwaitingPods, Message: "no running pod shows where the sockets are yet"}
	case onHost:
		return Choice{Delivery: v1alpha1.DeliveryDaemonSet, Reason: SocketsOnHost, Message: "DaemonSet: the sockets are in folders of the nodes" + others}
	default:
		return Choice{Delivery: v1alpha1.DeliveryCompanion, Reason: SocketsInPods, Message: "Companion: the sockets are in volumes of the API server's pods" + others}
	}
}
