package operatorcr

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
)

// writers are the writers of each report, from the object's managedFields.
type writers map[writerKey]writer

type writerKey struct {
	form Form
	node string
}

type writer struct {
	manager string
	written time.Time
	own     bool // it writes for this node alone, even if others own a part of the report
}

// sign sets the writer of a report, and dates its entries by the API server's clock: a node's
// own clock may be wrong. A reporter writes what it has just checked.
func (w writers) sign(r *Report) {
	by := w[writerKey{r.Form, r.Node}]
	r.Written, r.Writer, r.Ours = by.written, by.manager, by.own && r.Form == FormCondition
	if !by.own || by.written.IsZero() || len(r.Entries) == 0 {
		return
	}
	newest := slices.MaxFunc(r.Entries, func(a, b contract.Entry) int { return a.LastChecked.Compare(b.LastChecked) })
	r.Ahead = by.written.Sub(newest.LastChecked)
	for i := range r.Entries {
		r.Entries[i].LastChecked = r.Entries[i].LastChecked.Add(r.Ahead)
	}
}

// readWriters walks the decoded managedFields: converting them to typed ones first would
// cost more than all other work.
func readWriters(o *unstructured.Unstructured) writers {
	all := writers{}
	for _, e := range elements(o, "metadata", "managedFields") {
		manager := e.text("manager")
		at, _ := time.Parse(time.RFC3339, e.text("time"))
		owned, _ := e["fieldsV1"].(map[string]any)
		// own is the manager of a reporter that writes for this node alone.
		note := func(form Form, node, own string) {
			key := writerKey{form, node}
			w := all[key]
			if isOwn := manager == own; isOwn && !w.own || isOwn == w.own && (w.manager == "" || at.After(w.written)) {
				all[key] = writer{manager, at, isOwn}
			}
		}
		for key := range below(owned, "status", "conditions") {
			if conditionType, ok := keyField(key, "type"); ok {
				if node, ok := contract.NodeOf(conditionType); ok {
					note(FormCondition, node, contract.ConditionManager(node))
				}
			}
		}
		for _, path := range encryptionStatuses {
			for key := range below(below(owned, path...), contract.HealthReports) {
				if node, ok := keyField(key, "nodeName"); ok {
					note(FormTyped, node, contract.NativeManager(node))
				}
			}
		}
	}
	return all
}

// below follows field names in a FieldsV1.
func below(fields map[string]any, path ...string) map[string]any {
	for _, name := range path {
		fields, _ = fields["f:"+name].(map[string]any)
	}
	return fields
}

// keyField returns a field of a list element's key, as FieldsV1 spells it:
// k:{"type":"…"}.
func keyField(key, name string) (string, bool) {
	// No node has a name with an escape, so a quote ends it: a decoder for each key would cost more
	// than all other work.
	_, value, found := strings.Cut(key, `"`+name+`":"`)
	if !found || !strings.HasPrefix(key, "k:") || strings.Contains(key, `\`) {
		return "", false
	}
	value, _, found = strings.Cut(value, `"`)
	return value, found
}
