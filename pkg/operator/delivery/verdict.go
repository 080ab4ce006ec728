package delivery

import (
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Verdict is the result of a target's last sync.
type Verdict struct {
	// Degraded is KMSPluginsDegraded: as it was evaluated, else as it stands on the resource. The zero
	// one: there is none.
	Degraded operatorstatus.Condition
	// Reporting is KMSHealthReporting, also where it cannot be written: without an operator resource. The
	// zero one is not known, or there is none.
	Reporting operatorstatus.Condition
	// Done means that nothing of a target is left on its resource, and no own reporter
	// can write there.
	Done   bool
	Judged bool // at least once
}
