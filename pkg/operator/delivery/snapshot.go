// Package delivery has the values that the operator's controllers pass to each other: how the reporters of an API
// server are delivered, and its plugin sets. It also reads the API server's pods. It does no I/O and imports no
// controller.
package delivery

import (
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Target is an API server with the status of its delivery. A zero Status is not known yet.
type Target struct {
	v1alpha1.APIServer
	Status Status
}

// Snapshot is what the roll-up of an API server needs to know of its delivery.
type Snapshot struct {
	v1alpha1.APIServer
	Sources *informers.Target
	// State has the last known plugin sets; SetsKnown means that there is a live one.
	State     State
	SetsKnown bool
	// LiveKnown means that the live set is configured or was read by this process. Else it was only recorded.
	LiveKnown bool
	// Served has, by node, the UID of the API server's pod with plugins that the node's report is about: of two pods, the
	// one that was seen last.
	Served map[string]string
	// Status is the status of the delivery. Zero: not known yet, or there is nothing to report.
	Status Status
	// Off means that no reporter should report any more. Clean means that no managed reporter is left that could.
	Off, Clean bool
	// OtherInstallation means that another operator owns the API server: this one writes no condition of it.
	OtherInstallation bool
	// Unmanaged means that no report is to be removed.
	Unmanaged bool
	// NamespaceMissing means that the target's namespace does not exist.
	NamespaceMissing bool
}

// Verdict is the result of a target's last sync.
type Verdict struct {
	// Degraded is KMSPluginsDegraded: as evaluated, or as it was before while too little is known. Zero: there is none.
	Degraded operatorstatus.Condition
	// Reporting is KMSHealthReporting. It is evaluated even if there is no operator resource to write it to. Zero: it is
	// not known, or there is none.
	Reporting operatorstatus.Condition
	// Done means that nothing of a target is left on its resource, and no managed reporter can write there.
	Done   bool
	Judged bool // at least once
	// Silent has the reports that do not change, by node, to be recorded; nil: not known yet.
	Silent map[string]rollup.Silence
}
