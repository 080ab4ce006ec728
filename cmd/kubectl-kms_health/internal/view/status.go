package view

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// APIVersion is that of the JSON and YAML output. Fields may be added; none is removed or
// changes its meaning.
const APIVersion = "kmshealth.openshift.io/v1alpha1"

// Status is the output of -o json and -o yaml.
type Status struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Status
	// Time is the time of the evaluation.
	Time    metav1.Time    `json:"time"`
	Targets []TargetStatus `json:"targets"`
}

// TargetStatus is the state of one API server's plugins.
type TargetStatus struct {
	// Target is the operator resource, as in kubeapiservers; empty for a reporter's
	// output, which does not contain it.
	Target string `json:"target"`
	// Conditions are the operator's, as it last wrote them, in a fixed order.
	Conditions []Condition `json:"conditions"`
	// Rotation are those of OpenShift's key rotation, which reads the typed reports; not
	// set where there are none.
	Rotation []Condition `json:"rotation,omitempty"`
	// Plugins are by node, the one that encrypts first.
	Plugins []Plugin `json:"plugins"`
	// WriteKey is the agreement on a key by the reports only: pods and the encryption
	// config are not read, so the first key that a node reports counts as its write key.
	WriteKey rollup.Agreement `json:"writeKey"`

	expected bool // there are reports, or an operator expects some
	missing  bool // the operator expects a report that was never written
}

// Expected reports whether there are reports, or an operator expects some: otherwise KMS is
// off.
func (t *TargetStatus) Expected() bool { return t.expected }

// Condition of an operator resource.
type Condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Reason             string      `json:"reason"`
	Message            string      `json:"message"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// Plugin is one plugin on one node.
type Plugin struct {
	Node  string `json:"node"`
	KeyID string `json:"keyID"` // empty if not in the report, or without a report
	// Write means that this is the key that the node encrypts with.
	Write bool         `json:"write,omitempty"`
	KEKID string       `json:"kekID,omitempty"`
	State rollup.State `json:"state"`
	// Status is that of the last entry, valid only while the entry is fresh: State has the
	// verdict.
	Status          contract.Status `json:"status,omitempty"`
	LastChecked     *metav1.Time    `json:"lastChecked,omitempty"`
	IntervalSeconds int64           `json:"intervalSeconds,omitempty"` // 0: not reported
	// Reason and Detail are the cause of Status.
	Reason contract.Reason `json:"reason,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Form   operatorcr.Form `json:"form,omitempty"`
	// Reporter is the field manager that last wrote it; Ours reports whether that is a
	// reporter of this project. Both are not set where that is not known.
	Reporter string `json:"reporter,omitempty"`
	Ours     *bool  `json:"ours,omitempty"`
}

// Age is how old the entry was at an instant, and whether there is one.
func (p *Plugin) Age(now time.Time) (time.Duration, bool) {
	if p.LastChecked == nil {
		return 0, false
	}
	return now.Sub(p.LastChecked.Time), true
}

// shown are the conditions to show, in this order.
var shown = []string{
	contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed,
}

// Of evaluates targets at a time. again is when the result may change without another
// write; zero: never.
func Of(targets []Target, now time.Time) (s Status, again time.Time) {
	s = Status{APIVersion: APIVersion, Kind: "Status", Time: metav1.NewTime(now.UTC()), Targets: []TargetStatus{}}
	for _, t := range targets {
		rows, at := rollup.Rows(t.Resource.Reports, t.expected(), now)
		if again.IsZero() || !at.IsZero() && at.Before(again) {
			again = at
		}
		one := TargetStatus{
			Target:     t.Name,
			Conditions: []Condition{},
			Plugins:    make([]Plugin, 0, len(rows)),
			WriteKey:   rollup.Agree(rows, nodesOf(rows), nil, "", now),
			expected:   len(rows) > 0 || t.rolledUp(),
			missing:    t.misses(),
		}
		for _, conditionType := range shown {
			if c, stands := t.Resource.Conditions[conditionType]; stands {
				one.Conditions = append(one.Conditions, conditionOf(c))
			}
		}
		for _, c := range t.Rotation {
			one.Rotation = append(one.Rotation, conditionOf(c))
		}
		for i := range rows {
			one.Plugins = append(one.Plugins, t.plugin(&rows[i]))
		}
		markWrite(one.Plugins)
		s.Targets = append(s.Targets, one)
	}
	return s, again
}

func conditionOf(c operatorcr.Condition) Condition {
	return Condition{c.Type, c.Status, c.Reason, c.Message, metav1.NewTime(c.LastTransitionTime)}
}

// nodesOf are the nodes that rows are about. Reports alone show what an API server writes with:
// the first key that its node reports on, or, of a node without a report, the others' only one.
func nodesOf(rows []rollup.Row) (nodes []rollup.Node) {
	first := map[string]string{}
	for _, row := range rows {
		if n := len(nodes); n == 0 || nodes[n-1].Name != row.Node {
			nodes = append(nodes, rollup.Node{Name: row.Node})
		}
		if first[row.Node] == "" && row.State != rollup.Missing && row.KeyID != "" {
			first[row.Node] = row.KeyID
		}
	}
	keys := slices.Compact(slices.Sorted(maps.Values(first)))
	for i := range nodes {
		key := first[nodes[i].Name]
		if key == "" && len(keys) == 1 {
			key = keys[0]
		}
		if key != "" {
			nodes[i].Keys, nodes[i].WriteKey = []string{key}, key
		}
	}
	return nodes
}

func (t Target) plugin(row *rollup.Row) Plugin {
	p := Plugin{
		Node: row.Node, KeyID: row.KeyID, KEKID: row.KEKID, State: row.State, Status: row.Status,
		IntervalSeconds: int64(row.Interval / time.Second), Reason: row.Reason, Detail: row.Detail,
	}
	if !row.LastChecked.IsZero() {
		p.LastChecked = &metav1.Time{Time: row.LastChecked}
	}
	if report, found := t.origin(row); found {
		p.Form, p.Reporter = report.Form, report.Writer
		if report.Writer != "" {
			p.Ours = &report.Ours
		}
	}
	return p
}

// markWrite marks the first key of each node: that is the contract's order.
func markWrite(plugins []Plugin) {
	node, marked := "", false
	for i := range plugins {
		if p := &plugins[i]; i == 0 || p.Node != node {
			node, marked = p.Node, false
		}
		if p := &plugins[i]; !marked && p.LastChecked != nil {
			p.Write, marked = true, true
		}
	}
}

// Select keeps the reports of some nodes; of all if none is given. The data on the whole
// target, such as the agreement on a key, stays that of all nodes.
func (s *Status) Select(nodes []string) {
	if len(nodes) == 0 {
		return
	}
	for i := range s.Targets {
		t := &s.Targets[i]
		t.Plugins = slices.DeleteFunc(t.Plugins, func(p Plugin) bool { return !slices.Contains(nodes, p.Node) })
		t.expected, t.missing = false, false // not every node has every API server
	}
}

// Nodes are those with any data, sorted.
func (s *Status) Nodes() []string {
	var nodes []string
	for _, t := range s.Targets {
		for _, p := range t.Plugins {
			nodes = append(nodes, p.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Verdict is the overall result.
type Verdict int

// The verdicts; their values are the exit codes.
const (
	AllHealthy Verdict = 0
	Unhealthy  Verdict = 1
	CannotTell Verdict = 2
)

// Verdict is Unhealthy if a plugin is unhealthy by a fresh report; otherwise CannotTell if
// an expected report is missing or not valid, and if nothing is reported at all. A target
// without any report and without an operator that expects one does not count: KMS is off.
func (s *Status) Verdict() Verdict {
	verdict, reports := AllHealthy, false
	for _, t := range s.Targets {
		if len(t.Plugins) == 0 && t.expected || t.missing {
			verdict = CannotTell
		}
		for _, p := range t.Plugins {
			reports = true
			switch {
			case p.State.Unhealthy():
				return Unhealthy
			case p.State != rollup.Healthy:
				verdict = CannotTell
			}
		}
	}
	if !reports {
		return CannotTell
	}
	return verdict
}
