package probe

import (
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

// Result is what one probe found.
type Result struct {
	// Status, Reason and Detail are the verdict, as in the contract.
	Status health.Status
	Reason health.Reason
	Detail string
	// KEKID is the plugin's key id, when it answered a valid one.
	KEKID string
	// Answered is true when the plugin's process answered Status, well or not.
	Answered bool
	// Connection counts the connections to the plugin: it has another one after its
	// process was restarted.
	Connection int
	// At is when the answer, or the failure to get one, arrived, by the wall clock.
	At time.Time
	// Took is how long the probe lasted.
	Took time.Duration
	// More says that the same result follows once more, with a diagnosis where there is
	// one.
	More bool

	// Gone is set when there is nothing to observe: the socket's folder was deleted,
	// with the pod that it belonged to. Nothing else is set then but Detail, and the
	// times.
	Gone bool
	// NotProbed says why the reporter itself could not ask the plugin: it has no
	// descriptors or memory left. That says nothing of the plugin: nothing else is set
	// then but the times.
	NotProbed string
}

// verdict is a status with its reason, and words for people.
type verdict struct {
	status health.Status
	reason health.Reason
	detail string
	lost   bool // by a code that also says that the connection was lost or closed
}

// unhealthy is the verdict on a plugin that answered, and not well.
func unhealthy(reason health.Reason, detail string) *verdict {
	return &verdict{status: health.Unhealthy, reason: reason, detail: detail}
}
