package rollup

import (
	"slices"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Types are those of a roll-up's conditions. Only the first has a suffix that a StatusSyncer
// aggregates into a cluster operator's condition.
var Types = []string{contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed}

// mostSevere is the row of the most severe finding.
func mostSevere(findings []Finding) contract.RollupReason {
	at := slices.IndexFunc(contract.RollupReasons, func(r contract.RollupReason) bool {
		return slices.ContainsFunc(findings, func(f Finding) bool { return string(f.Reason) == r.Reason })
	})
	return contract.RollupReasons[at]
}
