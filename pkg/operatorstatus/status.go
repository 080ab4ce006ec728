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
	for _, e := range elements(o, "status", "conditions") {
		if !strings.HasPrefix(e.text("type"), prefix) {
			continue // most conditions have other writers
		}
		condition := e.condition()
		node, isReport := contract.NodeOf(condition.Type)
		if !isReport {
			r.Conditions[condition.Type] = condition
			continue
		}
		report := Report{Node: node, Form: FormCondition}
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
	at := slices.IndexFunc(r.Reports, func(of Report) bool { return of.Form == FormTyped && of.Node == node })
	if at < 0 {
		at, r.Reports = len(r.Reports), append(r.Reports, Report{Node: node, Form: FormTyped})
	}
	report := &r.Reports[at]
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

// Managers returns the field managers that own a part of a condition.
func Managers(o *unstructured.Unstructured, conditionType string) (all []string) {
	key := `k:{"type":"` + conditionType + `"}` // as FieldsV1 spells it
	for _, e := range elements(o, "metadata", "managedFields") {
		if _, owns, _ := unstructured.NestedFieldNoCopy(e, "fieldsV1", "f:status", "f:conditions", key); owns {
			all = append(all, e.text("manager"))
		}
	}
	return all
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

// Removal returns the JSON patch that removes conditions of some types from an object as it was read; nil: it has
// none. The patch is a conflict if the object was written since.
func Removal(o *unstructured.Unstructured, conditionTypes []string) []byte {
	patch := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": o.GetResourceVersion()}}
	for at, e := range slices.Backward(elements(o, "status", "conditions")) { // the last first: other indexes stay valid
		if slices.Contains(conditionTypes, e.text("type")) {
			patch = append(patch, map[string]any{"op": "remove", "path": fmt.Sprintf("/status/conditions/%d", at)})
		}
	}
	if len(patch) == 1 {
		return nil
	}
	return []byte(contract.Marshal(patch))
}
