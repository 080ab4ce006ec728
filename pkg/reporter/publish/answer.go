package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	maxAnswer    = 4 << 20   // bytes of a response that are read: metadata with managed fields of some hundred reporters
	keptAnswer   = 256 << 10 // bytes of the largest buffer that is kept for the next response
	maxErrorText = 64 << 10  // bytes of an error response that are read
	shownAnswer  = 100       // bytes that are shown of a response that is not an API server's
)

var errAtomicList = errors.New("the list status.conditions of this resource is atomic, so each write removes " +
	"all other conditions: nothing more is written. Set x-kubernetes-list-type: map and " +
	"x-kubernetes-list-map-keys: [type] in its CRD, and restart the reporter")

// answerShows returns nil if, by an answer's managed fields, the node's manager owns the node's condition: the write
// took effect. A manager that owns the list of conditions, and not its items, has replaced all (AtomicList).
func answerShows(answer []byte, node string) *failure {
	manager, key := contract.ConditionManager(node), `k:{"type":"`+contract.ConditionType(node)+`"}`
	if ownsAtFirstSight(answer, manager, key) {
		return nil // nearly always; decoding costs more than all else here
	}
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
	_ = json.Unmarshal(answer, &object) // an answer that is not an object shows no manager
	failed := &failure{kind: Unexpected, err: fmt.Errorf("the answer is no metadata of an object in which the manager %s "+
		"owns the condition %s: the write had no effect, or this is no API server: %.*q", manager,
		contract.ConditionType(node), shownAnswer, answer)}
	for _, owned := range object.Metadata.ManagedFields {
		items := owned.FieldsV1.Status.Conditions
		if owned.Manager != manager || items == nil {
			continue
		}
		if _, owns := items[key]; owns {
			return nil
		}
		if len(items) == 0 {
			failed = &failure{kind: AtomicList, err: errAtomicList}
		}
	}
	return failed
}

// ownsAtFirstSight finds the first entry of a manager in managed fields as API servers write them:
// without white space, the manager first. A string of the answer cannot match, since a quote within
// it is escaped, and neither can a label or an annotation, which come before.
func ownsAtFirstSight(answer []byte, manager, key string) bool {
	_, fields, _ := bytes.Cut(answer, []byte(`"managedFields":[`))
	_, entry, _ := bytes.Cut(fields, []byte(`{"manager":"`+manager+`",`))
	entry, _, _ = bytes.Cut(entry, []byte(`{"manager":"`))
	return bytes.Contains(entry, []byte(`"fieldsV1":{"f:status":{"f:conditions":{`+strconv.Quote(key)+`:`))
}
