package publish

import (
	"encoding/json"
	"errors"
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

var errAtomicList = errors.New("the list status.conditions of this resource is atomic, so each write removes " +
	"all other conditions: nothing more is written. Set x-kubernetes-list-type: map and " +
	"x-kubernetes-list-map-keys: [type] in its CRD, and restart the reporter")

// listFailure returns the failure of a write that was accepted, but replaced the whole list of
// conditions: by the answer's managed fields, the manager then owns the list and no item of it.
func listFailure(answer []byte, manager string) *failure {
	var object struct {
		Metadata struct {
			ManagedFields []struct {
				Manager  string `json:"manager"`
				FieldsV1 struct {
					Status struct {
						Conditions map[string]struct{} `json:"f:conditions"`
					} `json:"f:status"`
				} `json:"fieldsV1"`
			} `json:"managedFields"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(answer, &object) // what is no object shows nothing
	for _, owned := range object.Metadata.ManagedFields {
		if items := owned.FieldsV1.Status.Conditions; owned.Manager == manager && items != nil && len(items) == 0 {
			return &failure{kind: AtomicList, err: errAtomicList}
		}
	}
	return nil
}
