package target

import (
	"fmt"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// ForeignReporter is the init container of the field's other reporter.
const ForeignReporter = "kms-health-reporter"

// foreignFresh is how long a report of another make counts, four of the field's
// usual intervals of 30s.
const foreignFresh = 2 * time.Minute

// Choice is the delivery chosen for a target, and why.
type Choice struct {
	Delivery v1alpha1.Delivery // empty: none
	Reason   string
	Message  string
}

// Reasons of a choice, and of the condition.
const (
	ReasonConfigured      = "Configured"
	ReasonSocketsOnHost   = "SocketsOnHost"
	ReasonSocketsInPods   = "SocketsInPods"
	ReasonForeignReporter = "ForeignReporter"
	ReasonAwaitingPods    = "AwaitingPods"
)

// choose decides how the target's reporters get beside the sockets.
func (w *World) choose(sites []site) Choice {
	if d := w.Target.Delivery; d != v1alpha1.DeliveryAuto {
		return Choice{d, ReasonConfigured, fmt.Sprintf("%s, as configured", d)}
	}
	for _, s := range sites {
		for _, c := range s.pod.Spec.InitContainers {
			if c.Name == ForeignReporter {
				return Choice{"", ReasonForeignReporter, fmt.Sprintf("pod %s/%s has a reporter of another make, so none is added", s.pod.Namespace, s.pod.Name)}
			}
		}
	}
	if w.Resource != nil {
		if manager, wrote := w.Resource.Foreign(); w.Now.Sub(wrote) < foreignFresh {
			return Choice{"", ReasonForeignReporter, fmt.Sprintf("%s keeps the healthReports fresh, so no reporter is added", manager)}
		}
	}
	folders, onHost := 0, true
	for _, s := range sites {
		folders += len(s.Folders)
		onHost = onHost && sockets.OnHost(s.Folders)
	}
	switch {
	case len(sites) == 0 || folders == 0:
		if d := w.State.Delivery; d != "" {
			return Choice{d, ReasonAwaitingPods, fmt.Sprintf("%s, as before: no running pod shows where the sockets are", d)}
		}
		return Choice{"", ReasonAwaitingPods, "no running pod shows where the sockets are yet"}
	case onHost:
		return Choice{v1alpha1.DeliveryDaemonSet, ReasonSocketsOnHost, "DaemonSet: the sockets are in folders of the nodes"}
	default:
		return Choice{v1alpha1.DeliveryCompanion, ReasonSocketsInPods, "Companion: the sockets are in volumes of the API server's pods"}
	}
}
