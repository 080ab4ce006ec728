package stored

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Row counts the objects of a resource that are encrypted in one way.
type Row struct {
	Resource string `json:"resource"`
	Provider string `json:"provider"`
	KEKID    string `json:"kekID,omitempty"`
	Objects  int    `json:"objects"`
}

// Unreadable is a value that cannot be read, so it is not known which key it needs.
type Unreadable struct {
	Key   string `json:"key"`
	Error string `json:"error"`
}

// Inventory is the result of Read.
type Inventory struct {
	Summary string `json:"summary"`
	Next    string `json:"next,omitempty"` // rewrites what still needs the KEK ID that was asked for
	// Revisions are etcd's: one, and one more for each compaction during the reading.
	Revisions []int64 `json:"revisions"`
	// Rows are those of each resource with any encrypted object, and one of the others; or those of the KEK ID that was
	// asked for.
	Rows              []Row        `json:"rows"`
	Unreadable        []Unreadable `json:"unreadable,omitempty"` // at most 100 of the UnreadableObjects
	UnreadableObjects int          `json:"unreadableObjects"`

	// Verdict is Unhealthy if the KEK ID that was asked for is still needed, and NotKnown if something is not known.
	Verdict view.Verdict `json:"-"`

	of string // the resources, if not all, and the prefixes that were read
}

// inventory sorts what was counted.
func (r *reader) inventory() *Inventory {
	i, encrypted, kekIDs := &r.result, sets.New[string](), sets.New[string]()
	all, secured := r.objects-i.UnreadableObjects, 0
	for row, objects := range r.counts {
		if row.Provider != Identity {
			encrypted.Insert(row.Resource)
			secured += objects
		}
		if row.KEKID != "" {
			kekIDs.Insert(row.KEKID)
		}
	}
	resources, others := 0, Row{Provider: Identity}
	for row, objects := range r.counts {
		if row.Objects = objects; encrypted.Has(row.Resource) {
			i.Rows = append(i.Rows, row)
		} else {
			resources++
			others.Objects += objects
		}
	}
	slices.SortFunc(i.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Provider, b.Provider),
			cmp.Compare(a.KEKID, b.KEKID))
	})
	others.Resource = fmt.Sprintf("(%d others)", resources)
	i.Rows = append(i.Rows, others)
	if len(r.Resources) > 0 {
		i.of = " of " + strings.Join(r.Resources, ", ")
	}
	i.of += " below " + strings.Join(r.below, ", ")
	i.Summary = fmt.Sprintf("Encrypted: %d of %d objects, KEK IDs: %d", secured, all, kekIDs.Len())
	i.Verdict = view.Healthy
	if i.UnreadableObjects > 0 {
		i.Verdict = view.NotKnown
		i.Summary += fmt.Sprintf(", not readable: %d", i.UnreadableObjects)
	}
	return i
}

// isNamed reports whether a KEK ID is the one that a user names: as it is, by its hash, or as text shows it.
func isNamed(kekID, named string) bool {
	return contract.SameKEK(kekID, named) || contract.CleanDetail(kekID) == contract.CleanDetail(named)
}

// isPart reports whether one ID has the other between separators, as a key's version has the key's name, and an ARN the
// key's ID.
func isPart(a, b string) bool {
	parts := func(id string) string { return "/" + strings.ReplaceAll(id, ":", "/") + "/" }
	return strings.Contains(parts(a), parts(b)) || strings.Contains(parts(b), parts(a))
}

// Select keeps the rows that need a KEK ID, or may need it. Objects that cannot be read, are encrypted by KMS v1, or
// need an ID that is a part of that ID, or the reverse, may need it.
func (i *Inventory) Select(kekID string) {
	others, resources, rows := sets.New[string](), sets.New[string](), []Row{}
	needed, unknown := 0, i.UnreadableObjects
	for _, row := range i.Rows {
		hasID := row.KEKID != ""
		switch {
		case hasID && isNamed(row.KEKID, kekID):
			rows = append(rows, row)
			resources.Insert(row.Resource)
			needed += row.Objects
			continue
		case hasID && isPart(row.KEKID, kekID), !hasID && strings.HasPrefix(row.Provider, kms):
			rows = append(rows, row)
			unknown += row.Objects
		}
		if hasID {
			others.Insert(row.KEKID)
		}
	}
	names := sets.List(resources)
	i.Rows = rows
	switch {
	case needed > 0:
		i.Verdict = view.Unhealthy
		i.Summary = fmt.Sprintf("KEK ID %q is still needed, by %s (objects: %d)", kekID, strings.Join(names, ", "), needed)
		if all := strings.Join(names, ","); view.Word.MatchString(all) {
			i.Next = "kubectl get " + all + " -A -o json | kubectl patch --type=merge -p '{}' -f -"
		}
	case unknown > 0:
		i.Verdict = view.NotKnown
		i.Summary = fmt.Sprintf("Not known: whether an object%s needs KEK ID %q (objects: %d)", i.of, kekID, unknown)
	default:
		i.Summary = fmt.Sprintf("No object%s needs KEK ID %q", i.of, kekID)
	}
	if needed == 0 {
		i.Summary += "; in use are " + cmp.Or(strings.Join(sets.List(others), ", "), "none")
	}
}
