package delivery

import (
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

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
}
