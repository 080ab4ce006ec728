package probe

import (
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

// Result is what one probe found.
type Result struct {
	// Status and Detail are the verdict, as in the contract.
	Status health.Status
	Detail string
	// KEKID is the plugin's key id, when it answered a valid one.
	KEKID string
	// At is when the answer, or the failure to get one, arrived.
	At time.Time
	// Took is how long the probe lasted.
	Took time.Duration
	// Gone is set when there is nothing to observe: the socket's folder was deleted,
	// with the pod that it belonged to; or the folder is a pod's, and the socket is not
	// there, for up to MissingGrace. Nothing else is set then but Detail, which says
	// which, and the times.
	Gone bool
}
