package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Preflight is a Status, and what a change of keys, plugins or API servers needs besides.
type Preflight struct {
	Status
	// Request is that of the round trips.
	Request string  `json:"request"`
	Trips   []Trip  `json:"trips"`
	Checks  []Check `json:"checks"`
}

// Check is one precondition, of one API server.
type Check struct {
	APIServer string `json:"apiServer"`
	Name      string `json:"name"`
	// Verdict is Healthy if it holds. NotChecked changes no overall verdict: this cluster has no operator.
	Verdict Verdict `json:"verdict"`
	Summary string  `json:"summary"`
	// Reason is a name that explain has a block for, and Fix and DoNot are of that.
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	DoNot  string `json:"doNot,omitempty"`
}

// NotChecked is the verdict of a Check that is not possible in this cluster.
const NotChecked Verdict = "NotChecked"

// Preflight judges a status, and the trips in it.
func (t *Trips) Preflight(s *Status) *Preflight {
	p := &Preflight{Status: *s, Request: t.Request, Trips: t.Follow(s)}
	p.Kind = "Preflight"
	for i := range p.APIServers {
		p.check(&p.APIServers[i])
	}
	count := map[Verdict]int{}
	for i := range p.Checks {
		c := &p.Checks[i]
		count[c.Verdict]++
		if c.Verdict != Healthy && c.Reason != "" {
			block, _ := contract.RunbookOf(c.Reason)
			c.Fix, c.DoNot = block.Fix, block.DoNot
		}
	}
	p.Summary = fmt.Sprintf("%s hold", plural(count[Healthy], "check"))
	for _, verdict := range []Verdict{NotChecked, NotKnown, Unhealthy} { // the last one that was found decides
		if count[verdict] > 0 {
			p.Summary += fmt.Sprintf(", %d %s", count[verdict], results[verdict])
			if verdict == Unhealthy || verdict == NotKnown && p.Verdict == Healthy {
				p.Verdict = verdict
			}
		}
	}
	ready := map[Verdict]string{Healthy: "Ready", Unhealthy: "Not ready", NotKnown: "Not known"}
	p.Summary = ready[p.Verdict] + ": " + p.Summary + "."
	return p
}

var results = map[Verdict]string{NotChecked: "not possible here", NotKnown: "not known", Unhealthy: "failed"}

// add adds a check; its reason is only set where it does not hold.
func (p *Preflight) add(a *APIServer, name string, verdict Verdict, reason, summary string) {
	if verdict == Healthy {
		reason = ""
	}
	p.Checks = append(p.Checks, Check{APIServer: a.Name, Name: name, Verdict: verdict, Summary: summary, Reason: reason})
}

// check adds the checks of one API server.
func (p *Preflight) check(a *APIServer) {
	p.checkTrips(a)
	problems, text := Healthy, "status has none"
	for _, problem := range p.Problems { // the most severe first
		if problems == Healthy && (problem.APIServer == a.Name || problem.APIServer == "") {
			problems, text = problem.Verdict, "status has some, see below"
		}
	}
	p.add(a, "No problem", problems, "", text)
	kekIDs, providers, lost := byNode{}, byNode{}, byNode{}
	for _, plugin := range a.Plugins {
		if plugin.Write {
			kekIDs.add(plugin.Node, cmp.Or(plugin.KEKID, notNamed))
		}
		if !plugin.LastChecked.IsZero() {
			providers.add(plugin.Node, plugin.KeyID)
		}
		for _, id := range plugin.Lost {
			lost.add(plugin.Node, id)
		}
	}
	named := p.checkSame(a, "One KEK ID", kekIDs, contract.KeysDiffer)
	p.checkSame(a, "Same providers", providers, contract.WriteKeyNotDeployed)
	if _, text := lost.groups(); text != "" {
		p.add(a, "Former keys", Unhealthy, "KMSFormerKeyLost", "no longer decrypted: "+text)
	} else if len(a.Plugins) > 0 {
		p.add(a, "Former keys", Healthy, "", "each kept sample decrypts")
	}
	p.checkWriteKey(a, named)
	if c, verdict, none := p.condition(a, contract.HealthReporting); none != "" {
		p.add(a, "Reporters", verdict, "", none)
	} else {
		p.add(a, "Reporters", verdict, c.Reason, explained(&c))
	}
	for _, c := range a.Conditions {
		if c.Type == contract.PreflightDegraded && !AsExpected(&c) {
			p.add(a, "OpenShift's own preflight", Unhealthy, c.Type, explained(&c))
		}
	}
}

// notNamed stands for the KEK ID of a plugin that names none.
const notNamed = "none"

func (p *Preflight) checkTrips(a *APIServer) {
	all, waits := 0, byNode{}
	for _, trip := range p.Trips {
		if trip.APIServer == a.Name {
			all++
			if !trip.Done {
				waits.add(trip.Node, trip.Waits)
			}
		}
	}
	verdict, text := Healthy, fmt.Sprintf("%d of %s made one", all-len(waits), plural(all, "node"))
	if all == 0 {
		verdict, text = NotKnown, nothingReported
	} else if _, missing := waits.groups(); missing != "" {
		verdict, text = NotKnown, text+"; still awaited: "+missing+
			". If no request arrives, a regular one is made, by default every 5 minutes (--timeout)"
	}
	p.add(a, "Round trip", verdict, "", text)
}

// checkSame adds a check that all nodes report the same, and returns it; empty: it does not hold.
func (p *Preflight) checkSame(a *APIServer, name string, of byNode, reason string) (same string) {
	values, text := of.groups()
	switch {
	case len(values) > 1:
		p.add(a, name, Unhealthy, reason, text)
	case len(values) == 1 && values[0] == notNamed:
		p.add(a, name, NotKnown, "", text)
	case len(values) == 1:
		same = values[0]
		p.add(a, name, Healthy, "", text)
	}
	return same
}

// condition is the operator's condition of a type, and a check's verdict by its status; without one, why not.
func (p *Preflight) condition(a *APIServer, conditionType string) (c metav1.Condition, verdict Verdict, none string) {
	at := slices.IndexFunc(a.Conditions, func(c metav1.Condition) bool { return c.Type == conditionType })
	switch {
	case p.Operator.State == OperatorNotInstalled, at < 0 && p.Operator.State == OperatorNotKnown:
		return c, NotChecked, "only the operator finds out"
	case at < 0 || !p.Operator.ConditionsHold():
		return c, NotKnown, "the operator does not run, or has not written " + conditionType
	}
	c = a.Conditions[at]
	verdict = map[metav1.ConditionStatus]Verdict{operatorstatus.True: Healthy, operatorstatus.False: Unhealthy}[c.Status]
	return c, cmp.Or(verdict, NotKnown), ""
}

// checkWriteKey adds whether API servers write with the key that plugins name now.
func (p *Preflight) checkWriteKey(a *APIServer, named string) {
	const name = "Writes with it"
	c, verdict, none := p.condition(a, contract.WriteKeyAgreed)
	if none != "" {
		p.add(a, name, verdict, "", none)
		return
	}
	var agreed struct{ KeyID, KEKID, Since string }
	if verdict != Healthy {
		p.add(a, name, verdict, c.Reason, explained(&c))
	} else if err := json.Unmarshal([]byte(c.Message), &agreed); err != nil || !contract.SameKEK(agreed.KEKID, named) {
		p.add(a, name, NotKnown, c.Reason, ConditionText(&c)+" is about another KEK ID: "+c.Message)
	} else {
		since := cmp.Or(agreed.Since, c.LastTransitionTime.UTC().Format(time.RFC3339))
		p.add(a, name, Healthy, "", "every API server, since "+since)
	}
}

// explained is a condition in one line.
func explained(c *metav1.Condition) string {
	return ConditionText(c) + ": " + strings.ReplaceAll(c.Message, "\n", "; ")
}

// byNode are the values of each node.
type byNode map[string][]string

func (v byNode) add(node, value string) { v[node] = append(v[node], value) }

// groups are the different values, and a text of them with their nodes. A KEK ID may be the hash of another.
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
