package publish

import (
	"fmt"
	"time"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
)

type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// body returns the applied configuration: the reporter's own condition and nothing else.
func body(to contract.Resource, node string, since time.Time, entries []contract.Entry) ([]byte, error) {
	message, err := contract.EncodeMessage(entries)
	if err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	return applybody.Marshal(to.WithConditions([]condition{{
		Type:               contract.ConditionType(node),
		Status:             contract.ConditionStatus,
		LastTransitionTime: since.UTC().Format(time.RFC3339),
		Reason:             contract.ConditionReason,
		Message:            message,
	}}))
}
