package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Preflight is a Status, and what a change of keys, plugins or API servers needs besides.
type Preflight struct {
	Status
	Request string  `json:"request"` // the text that requests the round trips
	Trips   []Trip  `json:"trips"`
	Checks  []Check `json:"checks"`
}

// Check is one precondition, of one API server: a problem, if its verdict is not Healthy.
type Check struct {
	Name string `json:"name"`
	Problem
}

// Trip is whether the plugins of a node made a round trip since the command began.
type Trip struct {
	APIServer string `json:"apiServer"`
	Node      string `json:"node"`
	Done      bool   `json:"done"`
	Waits     string `json:"waits,omitempty"` // for what; empty if it is done
}

// Trips follows round trips over several statuses of one cluster.
type Trips struct {
	Request string               // what is requested
	Made    []Trip               // of each node, in the last status
	plugins map[string]*followed // by API server, node and key
}

// Regular is how many regular round trips of a plugin together count as the requested one. The first of them may have
// been under way before, or have been reported late (unchangedEvery).
const Regular = 2

// followed has when a plugin was checked as first seen, its last round trip, and how often that has changed.
type followed struct {
	checked, roundTrip metav1.Time
	changes            int
}

// Follow sets each node's trip by a new status. It is done if all plugins on the node have made theirs.
func (t *Trips) Follow(s *Status) {
	if t.plugins == nil {
		t.plugins = map[string]*followed{}
	}
	t.Made = []Trip{}
	for _, a := range s.APIServers {
		for i, p := range a.Plugins {
			if i == 0 || a.Plugins[i-1].Node != p.Node {
				t.Made = append(t.Made, Trip{APIServer: a.Name, Node: p.Node, Done: true})
			}
			if waits := t.waits(a.Name, &p); waits != "" {
				trip := &t.Made[len(t.Made)-1]
				trip.Done, trip.Waits = false, waits
			}
		}
	}
}

// waits is what a plugin waits for; empty: it is done. A healthy one has the request, or enough later round trips. An
// unhealthy one was checked again: it may make none.
func (t *Trips) waits(apiServer string, p *Plugin) string {
	if !isFresh(p.State) {
		return "a valid report"
	}
	key := apiServer + "/" + p.Node + "/" + p.KeyID
	f := t.plugins[key]
	if f == nil {
		f = &followed{checked: p.LastChecked, roundTrip: p.RoundTrip}
		t.plugins[key] = f
	}
	if !p.RoundTrip.Equal(&f.roundTrip) {
		f.roundTrip, f.changes = p.RoundTrip, f.changes+1
	}
	checked := p.State.Unhealthy() && !p.LastChecked.Equal(&f.checked)
	if checked || p.Requested == t.Request || f.changes >= Regular {
		return ""
	}
	return "a new round trip of key " + p.KeyID
}

// check returns whether every node of an API server has made its trip.
func (t *Trips) check(a *APIServer) Problem {
	nodes, waits := 0, byNode{}
	for _, trip := range t.Made {
		if trip.APIServer == a.Name {
			nodes++
		}
		if trip.APIServer == a.Name && !trip.Done {
			waits[trip.Node] = []string{trip.Waits}
		}
	}
	p := Problem{Verdict: Healthy, APIServer: a.Name, Summary: nothingReported}
	if nodes > 0 {
		p.Summary = fmt.Sprintf("%d of %d nodes made one", nodes-len(waits), nodes)
	}
	if slices.ContainsFunc(a.Plugins, func(plugin Plugin) bool { return plugin.State.Unhealthy() }) {
		p.Summary += " or tried in vain"
	}
	if _, text := waits.groups(); text != "" {
		p.Reason, p.Summary = contract.RoundTripAwaited, p.Summary+"; still awaited: "+text
	}
	if nodes == 0 || p.Reason != "" {
		p.Verdict = NotKnown
	}
	return p
}

// Await adds to a status the trips that are not done: its reports may be older than a change.
func (t *Trips) Await(s *Status) {
	e := &evaluation{Status: s, snapshot: &Snapshot{}} // no files, which do not change
	for i := range s.APIServers {
		if p := t.check(&s.APIServers[i]); p.Reason != "" {
			p.Summary = "round trip: " + p.Summary
			e.add(p)
		}
	}
	e.conclude()
}

// Preflight judges a status, which was followed. It drops API servers that do not run, or neither report a plugin nor
// have a condition, if others remain.
func (t *Trips) Preflight(s *Status) *Preflight {
	p := &Preflight{Status: *s, Request: t.Request, Trips: t.Made, Checks: []Check{}}
	used := slices.DeleteFunc(slices.Clone(p.APIServers), func(a APIServer) bool {
		return len(a.Plugins)+len(a.Conditions) == 0 || a.notRunning()
	})
	if len(used) > 0 {
		p.APIServers = used
	}
	p.Kind = "Preflight"
	for i := range p.APIServers {
		p.check(&p.APIServers[i], t.check(&p.APIServers[i]))
	}
	holds := 0
	for _, c := range p.Checks {
		if c.Verdict == Healthy {
			holds++
		} else if p.Verdict != Unhealthy {
			p.Verdict = c.Verdict
		}
	}
	ready := map[Verdict]string{Healthy: "Ready", Unhealthy: "Not ready", NotKnown: "Not known"}[p.Verdict]
	p.Summary = fmt.Sprintf("%s: %d of %d checks hold.", ready, holds, len(p.Checks))
	return p
}

// add adds a check. If it does not hold, it has the fix of the reason's runbook; none if reason is empty.
func (p *Preflight) add(a *APIServer, name string, verdict Verdict, reason, summary string) {
	c := Check{name, Problem{Verdict: verdict, Reason: reason, APIServer: a.Name, Summary: summary}}
	if verdict != Healthy {
		c.Problem = c.withFix()
	}
	p.Checks = append(p.Checks, c)
}

// check adds the checks of one API server.
func (p *Preflight) check(a *APIServer, trip Problem) {
	p.add(a, "Round trip", trip.Verdict, trip.Reason, trip.Summary)
	problems, text := Healthy, "status has none"
	about := func(problem Problem) bool { // this one, or none that is checked
		of := func(b APIServer) bool { return b.Name == problem.APIServer }
		return of(*a) || !slices.ContainsFunc(p.APIServers, of)
	}
	if at := slices.IndexFunc(p.Problems, about); at >= 0 { // the most severe first
		problems, text = p.Problems[at].Verdict, "status has some, see below"
	}
	p.add(a, "No problem", problems, "", text)
	providers, keys := a.byNode(func(plugin *Plugin) []string { return []string{plugin.KeyID} }), sets.New[string]()
	for _, of := range providers {
		keys.Insert(of...)
	}
	named := map[string]string{} // KEK IDs by key, also of a key that is to write next
	for _, key := range sets.List(keys) {
		named[key] = p.checkSame(a, "One KEK ID of key "+key, contract.KeysDiffer, a.byNode(func(plugin *Plugin) []string {
			if plugin.KeyID != key || plugin.KEKID == "" {
				return nil
			}
			return []string{plugin.KEKID}
		}))
	}
	p.checkSame(a, "Same providers", contract.WriteKeyNotDeployed, providers)
	unproven := func(plugin Plugin) bool { return plugin.State != rollup.Healthy || plugin.KEKID == "" }
	switch _, lost := a.byNode(func(plugin *Plugin) []string { return plugin.Lost }).groups(); {
	case lost != "":
		p.add(a, "Former keys", Unhealthy, "KMSFormerKeyLost", "no longer decrypted: "+lost)
	case trip.Verdict != Healthy || slices.ContainsFunc(a.Plugins, unproven):
		p.add(a, "Former keys", NotKnown, "", "not every plugin has made a good round trip, and named its KEK ID")
	default:
		p.add(a, "Former keys", Healthy, "", "no loss is known; a new reporter has no samples: see stored-keys")
	}
	p.checkCondition(a, "Writes with it", contract.WriteKeyAgreed, named)
	p.checkCondition(a, "Reporters", contract.HealthReporting, nil)
	if c := meta.FindStatusCondition(a.Conditions, contract.PreflightDegraded); c != nil && !AsExpected(c) {
		p.add(a, "OpenShift's own preflight", Unhealthy, c.Type, explained(c))
	}
}

// checkSame adds a check that all nodes that report something report the same, and returns it; empty: it does not hold.
func (p *Preflight) checkSame(a *APIServer, name, reason string, of byNode) (same string) {
	values, text := of.groups()
	switch {
	case len(values) > 1:
		p.add(a, name, Unhealthy, reason, text)
	case len(values) == 1:
		same = values[0]
		p.add(a, name, Healthy, "", text)
	}
	return same
}

// checkCondition adds a check of a condition. Without an operator it adds only one that does not hold: an operator may
// be in another namespace, or gone. An agreement must be about the KEK ID that all nodes name for its key.
func (p *Preflight) checkCondition(a *APIServer, name, conditionType string, named map[string]string) {
	c, absent := meta.FindStatusCondition(a.Conditions, conditionType), p.Operator.State == OperatorNotInstalled
	agrees := func() bool {
		agreed, err := rollup.DecodeAgreedKey(c.Message)
		return err == nil && contract.SameKEK(agreed.KEKID, named[agreed.KeyID])
	}
	switch {
	case c == nil && (absent || p.Operator.State == OperatorNotKnown), absent && c.Status == operatorstatus.True:
	case c == nil || !p.Operator.ConditionsHold():
		p.add(a, name, NotKnown, "", "the operator does not run, or has not written "+conditionType)
	case c.Reason == contract.NoWriteKey:
		p.add(a, name, Healthy, "", explained(c))
	case c.Status == operatorstatus.False:
		p.add(a, name, Unhealthy, c.Reason, explained(c))
	case c.Status != operatorstatus.True:
		p.add(a, name, NotKnown, c.Reason, explained(c))
	case conditionType == contract.WriteKeyAgreed && !agrees():
		p.add(a, name, NotKnown, c.Reason, ConditionText(c)+" is about a KEK ID that not every node names: "+c.Message)
	default:
		p.add(a, name, Healthy, "", ConditionText(c))
	}
}

// explained is a condition in one line.
func explained(c *metav1.Condition) string {
	return ConditionText(c) + ": " + strings.ReplaceAll(c.Message, "\n", "; ")
}

// byNode are the values of each node.
type byNode map[string][]string

// byNode returns values of the plugins with a valid report. Those of others are a problem: they may have changed.
func (a *APIServer) byNode(of func(*Plugin) []string) byNode {
	all := byNode{}
	for i := range a.Plugins {
		p := &a.Plugins[i]
		if values := of(p); isFresh(p.State) && len(values) > 0 {
			all[p.Node] = append(all[p.Node], values...)
		}
	}
	return all
}

// groups returns the different values, and a text of them with their nodes. A KEK ID equals its hash.
func (v byNode) groups() (values []string, text string) {
	var nodes []string
	for _, node := range slices.Sorted(maps.Keys(v)) {
		value := strings.Join(slices.Compact(v[node]), ", ")
		at := slices.IndexFunc(values, func(other string) bool { return contract.SameKEK(other, value) })
		if at < 0 {
			values, nodes = append(values, value), append(nodes, node)
		} else {
			nodes[at] += ", " + node
		}
	}
	for i, value := range values {
		text += "; " + value + " on " + nodes[i]
	}
	return values, strings.TrimPrefix(text, "; ")
}
