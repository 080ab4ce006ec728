// Package delivery has the values that the operator's controllers hand to each other: how the reporters of an API
// server are delivered, with its plugin sets, and what a pod shows of both. It calls nothing and links no controller.
package delivery

import (
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

// Target is an API server, with how its delivery stands. The zero Status: that is not known yet.
type Target struct {
	v1alpha1.APIServer
	Status Status
}

// Snapshot is what the roll-up of a target needs of its delivery.
type Snapshot struct {
	v1alpha1.APIServer
	Sources *informers.Target
	// State has the last known plugin sets; SetsKnown means that they are known.
	State     State
	SetsKnown bool
	// LiveKnown means that the live set is as it was read, not as it was recorded.
	LiveKnown bool
	// Served are the API server's pods that have a companion, or are to get one, by node: of two on a node their UIDs
	// say which one its report is about.
	Served map[string]string
	// Status is how the delivery stands. Zero: not known yet, or there is nothing to report.
	Status Status
	// Off means that no reporter should report any more; Clean, that no own reporter can.
	Off, Clean bool
	// OtherInstallation means that one owns the target: nothing of it is read or written.
	OtherInstallation bool
	// Unmanaged means that no report is to be removed.
	Unmanaged bool
	// NamespaceMissing means that the target's namespace does not exist.
	NamespaceMissing bool
	// Tool is the command line tool in messages: oc or kubectl.
	Tool string
}
