package operatorcr

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
)

// sign sets the writers of the reports, from the object's managedFields, and dates entries by the API
// server's clock: a node's own clock may be wrong. A reporter writes what it has just checked. The
// decoded managedFields are walked: converting them to typed ones first would cost more than all
// other work.
func (r *Status) sign(o *unstructured.Unstructured) {
	for _, e := range elements(o, "metadata", "managedFields") {
		at, _ := time.Parse(time.RFC3339, e.text("time"))
		owned, _ := e["fieldsV1"].(map[string]any)
		for key := range below(owned, "status", "conditions") {
			if conditionType, ok := keyField(key, "type"); ok {
				if node, ok := contract.NodeOf(conditionType); ok {
					r.note(FormCondition, node, e.text("manager"), contract.ConditionManager(node), at)
				}
			}
		}
		for _, path := range encryptionStatuses {
			for key := range below(below(owned, path...), contract.HealthReports) {
				if node, ok := keyField(key, "nodeName"); ok {
					r.note(FormTyped, node, e.text("manager"), contract.NativeManager(node), at)
				}
			}
		}
	}
	for i := range r.Reports {
		r.Reports[i].date()
	}
}

// note sets the writer of a report: its node's own reporter, even if others own a part of it, else the
// last writer. own is the manager of a reporter that writes for this node alone.
func (r *Status) note(form Form, node, manager, own string, at time.Time) {
	report, isOwn := r.reportOf(form, node), manager == own
	if report == nil {
		return
	}
	if isOwn && !report.own || isOwn == report.own && (report.Writer == "" || at.After(report.Written)) {
		report.Writer, report.Written, report.own = manager, at, isOwn
		report.Ours = isOwn && form == FormCondition
	}
}

func (r *Report) date() {
	if !r.own || r.Written.IsZero() || len(r.Entries) == 0 {
		return
	}
	newest := slices.MaxFunc(r.Entries, func(a, b contract.Entry) int { return a.LastChecked.Compare(b.LastChecked) })
	r.Ahead = r.Written.Sub(newest.LastChecked)
	for i := range r.Entries {
		r.Entries[i].LastChecked = r.Entries[i].LastChecked.Add(r.Ahead)
	}
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
