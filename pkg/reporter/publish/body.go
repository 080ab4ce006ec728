package publish

import (
	"fmt"
	"time"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Observation is an entry, with the last known key id of its plugin, which the typed form
// uses if the entry has none. Without either the typed form has no report on the plugin.
type Observation struct {
	health.Entry
	LastKEKID string
}

// Form is how observations are written. Each form has its own field manager and its own
// request, so that the other form is written too if the resource lacks the field of one.
type Form string

const (
	// Condition is the condition KMSHealthReporter_<node>.
	Condition Form = "Condition"
	// HealthReports is the typed list of the KMSEncryption feature gate.
	HealthReports Form = "HealthReports"
)

type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// body returns the applied configuration for a form: the reporter's own entry
// and nothing else.
func body(form Form, to operatorcr.Resource, node string, since time.Time, observed []Observation) ([]byte, error) {
	if form == HealthReports {
		reports := make([]health.Report, 0, len(observed))
		for _, o := range observed {
			if report, ok := health.NewReport(node, o.Entry, o.LastKEKID); ok {
				reports = append(reports, report)
			}
		}
		return applybody.Marshal(to.WithReports(reports))
	}
	entries := make([]health.Entry, len(observed))
	for i, o := range observed {
		entries[i] = o.Entry
	}
	message, err := health.EncodeMessage(entries)
	if err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	return applybody.Marshal(to.WithConditions([]condition{{
		Type:               health.ConditionType(node),
		Status:             health.ConditionStatus,
		LastTransitionTime: since.UTC().Format(time.RFC3339),
		Reason:             health.ConditionReason,
		Message:            message,
	}}))
}

// reportable returns those observations that a form can report.
func reportable(form Form, observed []Observation) []Observation {
	if form != HealthReports {
		return observed
	}
	var known []Observation
	for _, o := range observed {
		if o.KEKID != "" || o.LastKEKID != "" {
			known = append(known, o)
		}
	}
	return known
}

// manager returns the field manager for a form.
func manager(form Form, node string) string {
	if form == HealthReports {
		return health.ReportsManager(node)
	}
	return health.ConditionManager(node)
}
