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
	// maxAnswer bounds how much of a response is read, in bytes: metadata with managed fields of some hundred reporters.
	maxAnswer = 4 << 20
	// keptAnswer is how large a buffer is kept for the next response, in bytes.
	keptAnswer = 256 << 10
	// maxErrorText bounds how much of an error response is read, in bytes.
	maxErrorText = 64 << 10
	// shownAnswer is how much is shown of a response that is not an API server's, in bytes.
	shownAnswer = 100
)

var errAtomicList = errors.New("the list status.conditions of this resource is atomic, so each write removes " +
	"all other conditions: nothing more is written. Set x-kubernetes-list-type: map and " +
	"x-kubernetes-list-map-keys: [type] in its CRD, and restart the reporter")

// answerShows returns nil if the answer to a write shows that it took effect: by its managed fields,
// the node's manager owns the node's condition. A manager that owns the list of conditions as a whole,
// and not its items, has replaced all conditions (AtomicList).
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
