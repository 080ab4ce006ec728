package operatorcr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/health"
)

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Removal is the JSON patch that removes reports, as they were read, from the resource,
// and nothing else. It fails if the resource was changed since.
func (r *Status) Removal(gone []Report) []byte {
	patch := []operation{{"test", "/metadata/resourceVersion", r.Version}}
	var conditions, elements []place
	for _, report := range gone {
		for _, at := range report.at {
			if report.Form == FormCondition {
				conditions = append(conditions, place{at, report.Node})
			} else {
				elements = append(elements, place{at, report.Node})
			}
		}
	}
	backwards := func(a, b place) int { return b.at - a.at }
	slices.SortFunc(conditions, backwards)
	for _, p := range conditions {
		path := "/status/conditions/" + strconv.Itoa(p.at)
		patch = append(patch, operation{"test", path + "/type", health.ConditionType(p.node)}, operation{Op: "remove", Path: path})
	}
	// The schema allows no empty list, and no parent without one.
	parent := "/" + strings.Join(r.typed.path, "/")
	list := parent + "/" + healthReports
	slices.SortFunc(elements, backwards)
	for _, p := range elements {
		path := fmt.Sprintf("%s/%d", list, p.at)
		patch = append(patch, operation{"test", path + "/nodeName", p.node})
		if len(elements) < r.typed.elements {
			patch = append(patch, operation{Op: "remove", Path: path})
		}
	}
	switch {
	case len(elements) == 0 || len(elements) < r.typed.elements:
	case r.typed.siblings:
		patch = append(patch, operation{Op: "remove", Path: list})
	default:
		patch = append(patch, operation{Op: "remove", Path: parent})
	}
	raw, err := applybody.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("marshal a patch of strings: %v", err))
	}
	return raw
}

// index of a report in its list.
type place struct {
	at   int
	node string
}
