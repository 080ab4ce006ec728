// Package operatorstatus reads what belongs to this project in the status of the resources of pkg/contract: the
// reports of nodes, in either form and by any writer, and conditions. It also builds the patches that remove these.
package operatorstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
)

// prefix begins the type of every condition of this project.
const prefix = "KMS"

// Form of a report.
type Form string

const (
	// FormCondition is a condition KMSHealthReporter_<node>.
	FormCondition Form = "Condition"
	// FormTyped is elements of healthReports.
	FormTyped Form = "HealthReports"
)

// Report is the report of one node in one form.
type Report struct {
	Node string
	Form Form
	// Entries are the entries of the report, the write key first, with times by the node's clock. There are none if they
	// cannot be read; Err is the reason.
	Entries []contract.Entry
	Err     error
	at      int // the index of a FormCondition among the conditions

	// What follows is set by Sign.

	// Written is when its writer last wrote, by the clock of the API server that stored it.
	Written time.Time
	// Ours means that a reporter of this project wrote it, as far as the admission policy can know by the field manager,
	// even if others own a part of it, too. Writer is that manager, else the last writer's.
	Ours   bool
	Writer string
	Own    bool // Writer writes for this node alone
}

// Status is what belongs to this project in the status of an operator resource.
type Status struct {
	Version    string // its resourceVersion
	UID        types.UID
	Requested  string               // the value of contract.ProbeRequestedAnnotation, valid or not; empty: nothing
	Conditions map[string]Condition // of this project, without reports, by type
	Reports    []Report             // sorted by node and form
	Nodes      []NodeStatus         // that a static pod operator lists (status.nodeStatuses)
}

// encryptionStatuses has the paths of typed reports in the resources.
var encryptionStatuses = func() (paths [][]string) {
	for _, r := range contract.Resources {
		paths = append(paths, r.EncryptionStatus)
	}
	slices.SortFunc(paths, slices.Compare)
	return slices.CompactFunc(paths, slices.Equal)
}()

// NodeStatus is the status of a node set by a static pod operator.
type NodeStatus struct {
	Name      string
	Revision  string // of the API server on the node; empty: none is listed
	Replacing bool   // it is being replaced by one of another revision
}

// Read decodes an operator resource. Malformed parts are skipped, except reports: those have an Err.
func Read(o *unstructured.Unstructured) *Status {
	r := &Status{Version: o.GetResourceVersion(), UID: o.GetUID(), Conditions: map[string]Condition{},
		Requested: o.GetAnnotations()[contract.ProbeRequestedAnnotation]}
	for i, e := range elements(o, "status", "conditions") {
		if !strings.HasPrefix(e.text("type"), prefix) {
			continue // most conditions have other writers
		}
		condition := e.condition()
		node, isReport := contract.NodeOf(condition.Type)
		if !isReport {
			r.Conditions[condition.Type] = condition
			continue
		}
		report := Report{Node: node, Form: FormCondition, at: i}
		report.Entries, report.Err = contract.DecodeMessage(condition.Message)
		r.Reports = append(r.Reports, report)
	}
	for _, path := range encryptionStatuses {
		for _, e := range elements(o, append(slices.Clone(path), contract.HealthReports)...) {
			r.addTyped(e)
		}
	}
	r.readNodes(o)
	slices.SortStableFunc(r.Reports, func(a, b Report) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(string(a.Form), string(b.Form)))
	})
	return r
}

// addTyped adds an element of healthReports to the report of its node. One without a node is skipped.
func (r *Status) addTyped(e element) {
	node := e.text("nodeName")
	if node == "" {
		return
	}
	report := r.reportOf(FormTyped, node)
	if report == nil {
		r.Reports = append(r.Reports, Report{Node: node, Form: FormTyped})
		report = &r.Reports[len(r.Reports)-1]
	}
	entry, err := e.entry()
	if err != nil {
		report.Err, report.Entries = err, nil
	} else if report.Err == nil {
		report.Entries = append(report.Entries, entry)
	}
}

var typedStatus = map[string]contract.Status{
	"Healthy": contract.Healthy, "Unhealthy": contract.Unhealthy, "Error": contract.Error,
}

// entry converts an element of healthReports (operator.openshift.io/v1). It has no interval: readers assume
// contract.DefaultInterval.
func (e element) entry() (contract.Entry, error) {
	status, known := typedStatus[e.text("status")]
	if !known {
		return contract.Entry{}, fmt.Errorf("status: %q is none of Healthy, Unhealthy, Error", e.text("status"))
	}
	checked, err := time.Parse(time.RFC3339, e.text("lastCheckedTime"))
	if err != nil {
		return contract.Entry{}, fmt.Errorf("lastCheckedTime: %q is not an RFC 3339 time", e.text("lastCheckedTime"))
	}
	kekID := e.text("remoteKeyID")
	if kekID == "unknown" { // some writers use it if no KEK ID is known, since the schema requires one
		kekID = ""
	}
	return contract.Entry{KeyID: e.text("keyID"), KEKID: kekID, Status: status, LastChecked: checked.UTC(),
		Detail: e.text("detail")}, nil
}

// reportOf returns the report of a node; nil: there is none.
func (r *Status) reportOf(form Form, node string) *Report {
	for i := range r.Reports {
		if r.Reports[i].Form == form && r.Reports[i].Node == node {
			return &r.Reports[i]
		}
	}
	return nil
}

func (r *Status) readNodes(o *unstructured.Unstructured) {
	for _, e := range elements(o, "status", "nodeStatuses") {
		name := e.text("nodeName")
		if name == "" {
			continue
		}
		revision := func(field string) string { return fmt.Sprint(cmp.Or(e[field], any(0))) }
		current, target := revision("currentRevision"), revision("targetRevision")
		status := NodeStatus{Name: name, Replacing: target != "0" && target != current}
		if current != "0" {
			status.Revision = current
		}
		r.Nodes = append(r.Nodes, status)
	}
}

// Sign sets the writers of the reports from the object's managedFields. People need them, and the removal of a
// report; a verdict does not. The decoded managedFields are walked: converting them to typed ones first would cost
// more than all other work.
func (r *Status) Sign(o *unstructured.Unstructured) *Status {
	for _, e := range elements(o, "metadata", "managedFields") {
		at, _ := time.Parse(time.RFC3339, e.text("time"))
		owned, _ := e["fieldsV1"].(map[string]any)
		for key := range below(owned, "status", "conditions") {
			conditionType, found := keyField(key, "type")
			if node, is := contract.NodeOf(conditionType); found && is {
				r.note(FormCondition, node, e.text("manager"), contract.ConditionManager(node), at)
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
	return r
}

// note sets the writer of a report: its node's own reporter, even if others own a part of it, else the
// last writer. own is the manager of a reporter that writes for this node alone.
func (r *Status) note(form Form, node, manager, own string, at time.Time) {
	report, isOwn := r.reportOf(form, node), manager == own
	if report == nil {
		return
	}
	if isOwn && !report.Own || isOwn == report.Own && (report.Writer == "" || at.After(report.Written)) {
		report.Writer, report.Written, report.Own = manager, at, isOwn
		report.Ours = form == FormCondition && contract.WritesFor(manager, node)
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

// Reporter is the UID of the pod that wrote the report; empty: it does not name one.
func (r *Report) Reporter() string {
	if len(r.Entries) == 0 {
		return ""
	}
	return r.Entries[0].Reporter
}

// Validity returns how long the report is valid without a change.
func (r *Report) Validity() (longest time.Duration) {
	for _, e := range r.Entries {
		longest = max(longest, e.Validity())
	}
	return cmp.Or(longest, contract.Entry{}.Validity())
}

// Removal returns the JSON patch that removes reports of this project, which are conditions. The patch is a conflict
// if the resource was written after version.
func Removal(version string, gone []Report) []byte {
	var places []int
	for i := range gone {
		places = append(places, gone[i].at)
	}
	return without(version, places)
}

// without returns the JSON patch that removes the conditions at these indexes of a version.
func without(version string, places []int) []byte {
	patch := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": version}}
	slices.Sort(places)
	for _, at := range slices.Backward(places) { // the last first: the indexes before it stay valid
		patch = append(patch, map[string]any{"op": "remove", "path": fmt.Sprintf("/status/conditions/%d", at)})
	}
	return []byte(contract.Marshal(patch))
}

// Withdrawal returns the JSON patch that removes conditions of some types from an object as it was read, except those
// that another manager owns a part of; nil: there is none to remove.
func Withdrawal(o *unstructured.Unstructured, conditionTypes []string, isOther func(manager string) bool) []byte {
	kept := map[string]bool{}
	for _, e := range elements(o, "metadata", "managedFields") {
		owned, _ := e["fieldsV1"].(map[string]any)
		for key := range below(owned, "status", "conditions") {
			conditionType, _ := keyField(key, "type")
			kept[conditionType] = kept[conditionType] || isOther(e.text("manager"))
		}
	}
	var places []int
	for i, e := range elements(o, "status", "conditions") {
		if conditionType := e.text("type"); slices.Contains(conditionTypes, conditionType) && !kept[conditionType] {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return nil
	}
	return without(o.GetResourceVersion(), places)
}
