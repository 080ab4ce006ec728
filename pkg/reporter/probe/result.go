package probe

import (
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Result is the result of one probe.
type Result struct {
	Status   contract.Status // the verdict, as in the contract
	Reason   contract.Reason
	Detail   string
	KEKID    string    // the plugin's key id, if it returned a valid one
	Answered bool      // the plugin's process answered Status, healthy or not
	At       time.Time // when the answer, or the failure to get one, arrived, by the wall clock
	Took     time.Duration

	// Gone is set when there is nothing to observe: the socket's folder was deleted,
	// with its pod. Only Detail and the times are set then.
	Gone bool
	// NotProbed is why the reporter itself could not probe the plugin: it has no descriptors or
	// memory left, or did not run. The plugin's state is unknown: only the times are set then.
	NotProbed string
}

// verdict is a status with its reason, and a detail for people.
type verdict struct {
	status contract.Status
	reason contract.Reason
	detail string
	lost   bool // by a code that can also mean that the connection was lost or closed
	// stalled: by a timeout that may be caused by the reporter itself, which did not run
	stalled bool
}

// unhealthy is the verdict on a plugin that answered, but is not healthy.
func unhealthy(reason contract.Reason, detail string) *verdict {
	return &verdict{status: contract.Unhealthy, reason: reason, detail: detail}
}
