package operatorcr

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
)

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Removal is the JSON patch that removes reports of this project, which are conditions, as
// they were read, and nothing else. It fails if one of them was written since, or stands in
// another place. Other writes do not matter, since a resource may have several a second.
func Removal(gone []Report) []byte {
	patch := []operation{}
	backwards := func(a, b Report) int { return b.at - a.at } // so that no place moves
	for _, report := range slices.SortedFunc(slices.Values(gone), backwards) {
		path := "/status/conditions/" + strconv.Itoa(report.at)
		patch = append(patch, operation{"test", path + "/type", contract.ConditionType(report.Node)})
		if report.message != "" {
			patch = append(patch, operation{"test", path + "/message", report.message})
		}
		patch = append(patch, operation{Op: "remove", Path: path})
	}
	raw, err := applybody.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("marshal a patch of strings: %v", err))
	}
	return raw
}
