package rollup

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/health"
)

// The conditions of a roll-up. Only the first has a suffix that a StatusSyncer
// unites into a cluster operator's condition; the last two are for those who ask
// for them.
const (
	Degraded       = "KMSPluginsDegraded"
	Observed       = "KMSHealthObserved"
	WriteKeyAgreed = "KMSWriteKeyAgreed"
	Available      = "KMSPluginsAvailable"
	Progressing    = "KMSPluginsProgressing"
)

// Types are those of a roll-up's conditions, wanted or not.
var Types = []string{Degraded, Observed, WriteKeyAgreed, Available, Progressing}

// prefix begins the type of every condition of this project.
const prefix = "KMS"

// Condition as it stands on an operator resource.
type Condition struct {
	Type, Status, Reason, Message string
	// LastTransitionTime is when Status last changed, to the second.
	LastTransitionTime time.Time
}

// Fields are the condition as it is applied.
func (c Condition) Fields() map[string]any {
	return map[string]any{
		"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
	}
}

// Settle gives the condition its time: that of the one before, while the status is
// the same.
func (c *Condition) Settle(previous map[string]Condition, now time.Time) {
	c.LastTransitionTime = now.UTC().Truncate(time.Second)
	if was, had := previous[c.Type]; had && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
		c.LastTransitionTime = was.LastTransitionTime
	}
}

// The values of a Condition's Status.
const (
	True    = "True"
	False   = "False"
	Unknown = "Unknown"
)

// Form of a report.
type Form string

const (
	// FormCondition is a condition KMSHealthReporter_<node>.
	FormCondition Form = "Condition"
	// FormTyped is elements of healthReports.
	FormTyped Form = "HealthReports"
)

// Report is what was read of one node in one form.
type Report struct {
	Node string
	Form Form
	// Entries are what the node says, the write key first. None where Err tells why
	// they cannot be read.
	Entries []health.Entry
	Err     error
	// Since is when the node's present reporter first wrote; zero in the typed form.
	Since time.Time
	// Written is when the API server last took a write of it, by its own clock and
	// to the second; zero where nobody is known to have written it.
	Written time.Time
	// Ours says that a reporter of this project wrote it, though others may own a part
	// of it, too. Writer is its field manager, or else the one that last did.
	Ours   bool
	Writer string

	at []int // its places in the list that it is in
}

// Resource is what matters here of an operator resource.
type Resource struct {
	Version string // its resourceVersion
	// Conditions are those of this project that are no node's report, by type.
	Conditions map[string]Condition
	// Reports are sorted by node and form.
	Reports []Report

	typed typedList
}

// typedList is where healthReports is, and what is beside it.
type typedList struct {
	path     []string // of encryptionStatus; nil: there is none
	elements int
	siblings bool // encryptionStatus has other fields
}

// encryptionStatus is where the resources have it (operator.openshift.io/v1).
var encryptionStatus = [][]string{
	{"status", "encryptionStatus"},
	{"status", "oauthAPIServer", "encryptionStatus"}, // authentications
}

// Read takes an operator resource apart. What is malformed in it is passed over,
// but for reports: those say what is wrong.
func Read(o *unstructured.Unstructured) *Resource {
	r := &Resource{Version: o.GetResourceVersion(), Conditions: map[string]Condition{}}
	writers := readWriters(o)
	conditions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for i, c := range list {
		fields, _ := c.(map[string]any)
		name, _ := fields["type"].(string)
		if !strings.HasPrefix(name, prefix) {
			continue // most are of others
		}
		condition := readCondition(fields)
		node, isReport := health.NodeOf(condition.Type)
		if !isReport {
			r.Conditions[condition.Type] = condition
			continue
		}
		report := Report{Node: node, Form: FormCondition, Since: condition.LastTransitionTime, at: []int{i}}
		report.Entries, report.Err = health.DecodeMessage(condition.Message)
		writers.sign(&report)
		r.Reports = append(r.Reports, report)
	}
	r.readTyped(o, writers)
	slices.SortStableFunc(r.Reports, func(a, b Report) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(string(a.Form), string(b.Form)))
	})
	return r
}

// ReadConditions returns all conditions of a resource, by type.
func ReadConditions(o *unstructured.Unstructured) map[string]Condition {
	all := map[string]Condition{}
	conditions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		fields, _ := c.(map[string]any)
		if condition := readCondition(fields); condition.Type != "" {
			all[condition.Type] = condition
		}
	}
	return all
}

func readCondition(fields map[string]any) Condition {
	text := func(name string) string { s, _ := fields[name].(string); return s }
	at, _ := time.Parse(time.RFC3339, text("lastTransitionTime"))
	return Condition{text("type"), text("status"), text("reason"), text("message"), at}
}

func (r *Resource) readTyped(o *unstructured.Unstructured, writers writers) {
	for _, path := range encryptionStatus {
		parent, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
		fields, ok := parent.(map[string]any)
		if !ok {
			continue
		}
		list, _ := fields["healthReports"].([]any)
		r.typed = typedList{path: path, elements: len(list), siblings: len(fields) > 1}
		byNode := map[string]*Report{}
		for i, element := range list {
			fields, _ := element.(map[string]any)
			text := func(name string) string { s, _ := fields[name].(string); return s }
			node := text("nodeName")
			if node == "" {
				continue // nobody's report
			}
			report, known := byNode[node]
			if !known {
				report = &Report{Node: node, Form: FormTyped}
				writers.sign(report)
				byNode[node] = report
			}
			report.at = append(report.at, i)
			entry, err := health.Report{
				NodeName: node, KeyID: text("keyID"), Status: text("status"), LastCheckedTime: text("lastCheckedTime"),
				RemoteKeyID: text("remoteKeyID"), Detail: text("detail"),
			}.Entry()
			if err != nil {
				report.Err, report.Entries = err, nil
			} else if report.Err == nil {
				report.Entries = append(report.Entries, entry)
			}
		}
		for _, node := range slices.Sorted(maps.Keys(byNode)) {
			r.Reports = append(r.Reports, *byNode[node])
		}
	}
}

// Foreign returns who, of another make, last wrote a typed report, and when: none
// where nobody did.
func (r *Resource) Foreign() (manager string, written time.Time) {
	for _, report := range r.Reports {
		if report.Form == FormTyped && !report.Ours && report.Written.After(written) {
			manager, written = report.Writer, report.Written
		}
	}
	return manager, written
}

// Since is when the present reporter of a node first wrote its condition; zero
// where there is none.
func (r *Resource) Since(node string) time.Time {
	for _, report := range r.Reports {
		if report.Node == node && report.Form == FormCondition {
			return report.Since
		}
	}
	return time.Time{}
}
