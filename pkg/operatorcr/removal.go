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
// and nothing else. It fails if one of them was written since, or stands in another place.
// Other writes do not matter, since a resource may have several a second, except where the
// last report of a list is removed: the list goes with it, which fails after any change.
func (r *Status) Removal(gone []Report) []byte {
	patch := []operation{}
	var conditions, elements []place
	for _, report := range gone {
		for i, at := range report.at {
			p := place{at, report.Node, report.content[i]}
			if report.Form == FormCondition {
				conditions = append(conditions, p)
			} else {
				elements = append(elements, p)
			}
		}
	}
	whole := len(elements) > 0 && len(elements) == r.typed.elements
	if whole {
		patch = append(patch, operation{"test", "/metadata/resourceVersion", r.Version})
	}
	backwards := func(a, b place) int { return b.at - a.at }
	slices.SortFunc(conditions, backwards)
	for _, p := range conditions {
		path := "/status/conditions/" + strconv.Itoa(p.at)
		patch = append(patch, operation{"test", path + "/type", health.ConditionType(p.node)})
		patch = append(patch, p.unchanged(path+"/message")...)
		patch = append(patch, operation{Op: "remove", Path: path})
	}
	// The schema allows no empty list, and no parent without one.
	parent := "/" + strings.Join(r.typed.path, "/")
	list := parent + "/" + healthReports
	slices.SortFunc(elements, backwards)
	for _, p := range elements {
		path := fmt.Sprintf("%s/%d", list, p.at)
		patch = append(patch, operation{"test", path + "/nodeName", p.node})
		patch = append(patch, p.unchanged(path+"/lastCheckedTime")...)
		if !whole {
			patch = append(patch, operation{Op: "remove", Path: path})
		}
	}
	switch {
	case !whole:
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

// place of a report in its list, and what each of its writes changes; empty: it has none.
type place struct {
	at            int
	node, content string
}

// unchanged tests that the report was not written since.
func (p place) unchanged(path string) []operation {
	if p.content == "" {
		return nil
	}
	return []operation{{"test", path, p.content}}
}
