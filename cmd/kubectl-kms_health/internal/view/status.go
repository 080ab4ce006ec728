// Package view judges what was read of a cluster: the reports by pkg/rollup, and the operator's conditions as it last
// wrote them. It is pure, from a Snapshot to a Status, and forms no opinion that the roll-up has not.
package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// APIVersion is the version of the JSON and YAML output. Fields may be added; none is removed or changes its meaning.
const APIVersion = "kmshealth.openshift.io/v1alpha1"

// Status is the output of -o json and -o yaml.
type Status struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"` // Status
	Time       metav1.Time `json:"time"` // of the evaluation
	Verdict    Verdict     `json:"verdict"`
	Summary    string      `json:"summary"`        // the verdict with its numbers, a sentence
	Node       string      `json:"node,omitempty"` // set if only this node is shown
	Problems   []Problem   `json:"problems"`       // all reasons of a verdict that is not Healthy, the most severe first
	APIServers []APIServer `json:"apiServers"`
	Operator   Operator    `json:"operator"`
	History    []Change    `json:"history,omitempty"`
}

// APIServer is the state of one API server's plugins.
type APIServer struct {
	Name     string            `json:"name"`     // in the operator's configuration
	Resource string            `json:"resource"` // with the reports, as kubectl get accepts it
	Target   contract.Resource `json:"-"`        // the same
	AsOf     time.Time         `json:"-"`        // when its reports are evaluated: of a must-gather its own time
	// Conditions are the operator's, and OpenShift's on key rotation, as last written.
	Conditions []metav1.Condition `json:"conditions"`
	Plugins    []Plugin           `json:"plugins"` // by node, the one that encrypts first
	messages   sets.Set[string]   // the nodes that a reporter of this project reports on
}

// Plugin is one plugin on one node.
type Plugin struct {
	Node  string       `json:"node"`
	KeyID string       `json:"keyID"`           // empty if not in the report, or without a report
	Write bool         `json:"write,omitempty"` // the node encrypts with this key, by its report
	KEKID string       `json:"kekID,omitempty"`
	State rollup.State `json:"state"`
	// Reason and Detail are the cause, as reported.
	Reason          contract.Reason `json:"reason,omitempty"`
	Detail          string          `json:"detail,omitempty"`
	LastChecked     metav1.Time     `json:"lastChecked,omitzero"`
	IntervalSeconds int64           `json:"intervalSeconds,omitempty"` // 0: not reported
	Reporter        string          `json:"reporter,omitempty"`        // the UID of the pod that reported it

	// The following are as reported, by the node's clock: since when State and Reason are as they are, the end of
	// the last successful round trip, the last request that was fulfilled, and former keys that do not decrypt.
	Since     metav1.Time `json:"since,omitzero"`
	RoundTrip metav1.Time `json:"roundTrip,omitzero"`
	Requested string      `json:"requested,omitempty"`
	Lost      []string    `json:"lost,omitempty"`
}

// shown are the conditions to show, each with its status if all is as expected. The last six are
// of OpenShift's own controllers.
var shown = []metav1.Condition{
	{Type: contract.PluginsDegraded, Status: operatorstatus.False},
	{Type: contract.HealthReporting, Status: operatorstatus.True},
	{Type: contract.WriteKeyAgreed, Status: operatorstatus.True},
	{Type: "KmsHealthReportsProgressing", Status: operatorstatus.False},
	{Type: "KmsHealthReportsDegraded", Status: operatorstatus.False},
	{Type: contract.PreflightDegraded, Status: operatorstatus.False},
	{Type: "Encrypted", Status: operatorstatus.True},
	{Type: "EncryptionMigrationControllerProgressing", Status: operatorstatus.False},
	{Type: "EncryptionMigrationControllerDegraded", Status: operatorstatus.False},
}

// AsExpected reports whether a condition has the status that it has while all is well.
func AsExpected(c *metav1.Condition) bool {
	for _, s := range shown {
		if s.Type == c.Type {
			harmless := []string{contract.NoWriteKey, contract.Settling, "EncryptionDisabled", "DecryptionCompleted"}
			return c.Status == s.Status && c.Reason != contract.Progressing || slices.Contains(harmless, c.Reason)
		}
	}
	return true
}

// ErrUnknownName is wrapped if everything was read, and nothing has the selected name.
var ErrUnknownName = errors.New("no API server and no node")

// Evaluate judges a snapshot. Only one API server is evaluated, or one node, if selected is its
// name; empty: all. It is an error if there is no such name.
func Evaluate(s *Snapshot, selected string) (*Status, error) {
	status := &Status{APIVersion: APIVersion, Kind: "Status", Time: metav1.NewTime(s.Now.UTC()), Problems: []Problem{},
		APIServers: []APIServer{}, Operator: readOperator(s)}
	works := status.Operator.State == OperatorWorks
	for _, kind := range Resources {
		for _, o := range s.Objects {
			if r, is := ResourceOf(o); is && r.Plural == kind.Plural {
				status.APIServers = append(status.APIServers, read(r, o, s.asOf(o), works))
			}
		}
	}
	if err := status.narrow(selected, s.Problems); err != nil {
		return nil, err
	}
	if status.Operator.ConditionsHold() {
		for i := range status.APIServers {
			status.APIServers[i].dropUnexpected()
		}
	}
	e := &evaluation{Status: status, snapshot: s, tool: "kubectl", pods: s.pods(), servers: APIServers(s)}
	if slices.ContainsFunc(status.APIServers, func(a APIServer) bool { return !a.Target.PerAPIServer() }) {
		e.tool = "oc"
	}
	status.History = e.history()
	e.judge(selected == "")
	return status, nil
}

// narrow keeps the selected API server, or what is about the selected node.
func (s *Status) narrow(selected string, unread []error) error {
	if selected == "" {
		return nil
	}
	others := func(a APIServer) bool {
		kind := a.Target.Plural
		return !slices.Contains([]string{a.Name, a.Resource, kind, kind + "/" + a.Target.Name}, selected)
	}
	if all := slices.DeleteFunc(slices.Clone(s.APIServers), others); len(all) > 0 {
		s.APIServers = all
		return nil
	}
	selected = strings.TrimPrefix(selected, "node/")
	known := sets.New[string]()
	for i := range s.APIServers {
		a := &s.APIServers[i]
		known.Insert(a.Name)
		for _, p := range a.Plugins {
			known.Insert(p.Node)
		}
		a.Plugins = slices.DeleteFunc(a.Plugins, func(p Plugin) bool { return p.Node != selected })
	}
	s.Node = selected
	s.APIServers = slices.DeleteFunc(s.APIServers, func(a APIServer) bool { return len(a.Plugins) == 0 })
	if len(s.APIServers) > 0 {
		return nil
	}
	err := fmt.Errorf("%w %q; known are %s", ErrUnknownName, selected,
		cmp.Or(strings.Join(sets.List(known), ", "), "none"))
	if len(unread) > 0 {
		return fmt.Errorf("%s\n%w", err.Error(), errors.Join(unread...)) // it may exist
	}
	return err
}

// read decodes a resource, and evaluates its reports by their nodes' clocks. Where the operator works, and has seen
// each node's report change, none is stale, however wrong a clock is. But if all are stale, nothing can be written, and
// the conditions are out of date, too.
func read(r contract.Resource, o *unstructured.Unstructured, now time.Time, works bool) APIServer {
	resource := operatorstatus.Read(o)
	a := APIServer{Name: cmp.Or(r.APIServer.Name, r.Name), Resource: r.String(), Target: r, AsOf: now,
		Conditions: []metav1.Condition{}, Plugins: []Plugin{}, messages: sets.New[string]()}
	all := operatorstatus.ReadConditions(o)
	for _, s := range shown {
		if c, is := all[s.Type]; is {
			a.Conditions = append(a.Conditions, metav1.Condition{Type: c.Type, Status: metav1.ConditionStatus(c.Status),
				Reason: c.Reason, Message: c.Message, LastTransitionTime: metav1.NewTime(c.LastTransitionTime)})
		}
	}
	for _, r := range resource.Reports {
		if r.Form == operatorstatus.FormCondition {
			a.messages.Insert(r.Node)
		}
	}
	rows := rollup.Evaluate(&rollup.Input{Now: now, Wall: now, Reports: dated(resource.Reports)}).Rows
	for _, node := range expected(resource) {
		if !slices.ContainsFunc(rows, func(r rollup.Row) bool { return r.Node == node }) {
			rows = append(rows, rollup.Row{Node: node, State: rollup.Missing})
		}
	}
	slices.SortStableFunc(rows, func(a, b rollup.Row) int { return cmp.Compare(a.Node, b.Node) })
	allReport := works && all[contract.HealthReporting].Reason == contract.AsExpected &&
		slices.ContainsFunc(rows, func(r rollup.Row) bool { return isFresh(r.State) })
	marked := ""
	for _, row := range rows {
		if allReport && row.State == rollup.Stale && a.messages.Has(row.Node) {
			row.State = rollup.State(row.Status)
		}
		p := Plugin{
			Node: row.Node, KeyID: row.KeyID, KEKID: row.KEKID, State: row.State, Reason: row.Reason, Detail: row.Detail,
			LastChecked: metav1.NewTime(row.LastChecked), IntervalSeconds: int64(row.Interval / time.Second),
			Reporter: row.Reporter, Since: metav1.NewTime(row.Since), RoundTrip: metav1.NewTime(row.RoundTrip),
			Requested: row.Requested, Lost: row.Lost,
		}
		// The contract's order: a message has the write key first, if there is one. Typed reports have another.
		if !p.LastChecked.IsZero() && p.Node != marked && a.messages.Has(p.Node) {
			p.Write, marked = all[contract.WriteKeyAgreed].Reason != contract.NoWriteKey, p.Node
		}
		a.Plugins = append(a.Plugins, p)
	}
	return a
}

// isFresh reports whether a state is that of a valid report.
func isFresh(s rollup.State) bool { return s == rollup.Healthy || s.Unhealthy() }

// dated returns reports that changed when they were checked, by their nodes' clocks: one read shows no change.
func dated(reports []operatorstatus.Report) (all []rollup.Report) {
	for _, r := range reports {
		report := rollup.Report{Report: r}
		for _, e := range r.Entries {
			report.Entries = append(report.Entries, rollup.Entry{Entry: e, Changed: e.LastChecked})
		}
		all = append(all, report)
	}
	return all
}

// dropUnexpected drops plugins that the operator does not expect. If KMSHealthReporting is True, those without a report
// are dropped: their API server has no plugin yet. So are stale reports that OpenShift's reporters left behind, also if
// no API server runs.
func (a *APIServer) dropUnexpected() {
	c := meta.FindStatusCondition(a.Conditions, contract.HealthReporting)
	if c == nil || c.Status != operatorstatus.True && c.Reason != contract.NoPods {
		return
	}
	a.Plugins = slices.DeleteFunc(a.Plugins, func(p Plugin) bool {
		return p.State == rollup.Missing && c.Status == operatorstatus.True ||
			p.State == rollup.Stale && !a.messages.Has(p.Node)
	})
}

// expected returns the nodes that should report: those with a report, which may have no plugin; and, if there is any or
// the operator expects one, those that the API server runs on.
func expected(resource *operatorstatus.Status) (nodes []string) {
	for _, r := range resource.Reports {
		nodes = append(nodes, r.Node)
	}
	_, rolledUp := resource.Conditions[contract.PluginsDegraded]
	rolledUp = rolledUp && resource.Conditions[contract.HealthReporting].Reason != contract.NoPlugins
	for i := 0; i < len(resource.Nodes) && (len(nodes) > 0 || rolledUp); i++ {
		nodes = append(nodes, resource.Nodes[i].Name)
	}
	return nodes
}

// Change is an Event of the operator on a changed condition.
type Change struct {
	Time      metav1.Time `json:"time"` // when it was last seen
	APIServer string      `json:"apiServer"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message"` // it begins with the condition's type and status
	Count     int32       `json:"count,omitempty"`
}

const maxHistory = 10 // how many changes a Status has

// history are the last changes of the conditions of API servers, the oldest first.
func (e *evaluation) history() (all []Change) {
	for _, event := range decoded[corev1.Event](e.snapshot, "Event") {
		server, message, _ := strings.Cut(event.Message, ": ")
		condition, _, _ := strings.Cut(message, " ")
		shown := slices.ContainsFunc(e.APIServers, func(a APIServer) bool { return a.Name == server })
		if shown && event.Source.Component == contract.OperatorName && slices.Contains(rollup.Types, condition) {
			all = append(all, Change{event.LastTimestamp, server, event.Reason, message, event.Count})
		}
	}
	slices.SortStableFunc(all, func(a, b Change) int { return a.Time.Compare(b.Time.Time) })
	return all[max(0, len(all)-maxHistory):]
}
