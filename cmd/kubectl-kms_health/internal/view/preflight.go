package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Check is one precondition, of one API server.
type Check struct {
	APIServer string  `json:"apiServer"`
	Name      string  `json:"name"`
	Verdict   Verdict `json:"verdict"` // Healthy if it holds
	Summary   string  `json:"summary"`
	// Fix and DoNot are the runbook's, if it does not hold.
	Fix   string `json:"fix,omitempty"`
	DoNot string `json:"doNot,omitempty"`
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
		p.check(&p.APIServers[i])
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
	p.Summary = fmt.Sprintf("%s: %d of %s hold.", ready, holds, plural(len(p.Checks), "check"))
	return p
}

// add adds a check. If it does not hold, Fix and DoNot are those of the reason's runbook; none if reason is empty.
func (p *Preflight) add(a *APIServer, name string, verdict Verdict, reason, summary string) {
	c := Check{APIServer: a.Name, Name: name, Verdict: verdict, Summary: summary}
	if verdict != Healthy {
		block, _ := contract.RunbookOf(reason)
		c.Fix, c.DoNot = block.Fix, block.DoNot
	}
	p.Checks = append(p.Checks, c)
}

// check adds the checks of one API server.
func (p *Preflight) check(a *APIServer) {
	tried := p.checkTrips(a)
	problems, text := Healthy, "status has none"
	about := func(problem Problem) bool { // this one, or none that is checked
		of := func(b APIServer) bool { return b.Name == problem.APIServer }
		return of(*a) || !slices.ContainsFunc(p.APIServers, of)
	}
	if at := slices.IndexFunc(p.Problems, about); at >= 0 { // the most severe first
		problems, text = p.Problems[at].Verdict, "status has some, see below"
	}
	p.add(a, "No problem", problems, "", text)
	kekIDs, providers, lost := map[string]byNode{}, byNode{}, byNode{}
	for _, plugin := range a.Plugins {
		for _, id := range plugin.Lost {
			lost.add(plugin.Node, id)
		}
		if !isFresh(plugin.State) { // a problem: what it had may have changed
			continue
		}
		providers.add(plugin.Node, plugin.KeyID)
		if plugin.KEKID == "" {
			continue
		}
		if kekIDs[plugin.KeyID] == nil {
			kekIDs[plugin.KeyID] = byNode{}
		}
		kekIDs[plugin.KeyID].add(plugin.Node, plugin.KEKID)
	}
	named := map[string]string{} // KEK IDs by key, also of a key that is to write next
	for _, key := range slices.Sorted(maps.Keys(kekIDs)) {
		named[key] = p.checkSame(a, "One KEK ID of key "+key, kekIDs[key], contract.KeysDiffer)
	}
	p.checkSame(a, "Same providers", providers, contract.WriteKeyNotDeployed)
	unproven := func(plugin Plugin) bool { return plugin.State != rollup.Healthy || plugin.KEKID == "" }
	switch _, text := lost.groups(); {
	case text != "":
		p.add(a, "Former keys", Unhealthy, "KMSFormerKeyLost", "no longer decrypted: "+text)
	case !tried || slices.ContainsFunc(a.Plugins, unproven):
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

// checkTrips adds whether every node has made a round trip, and returns it.
func (p *Preflight) checkTrips(a *APIServer) bool {
	own := slices.DeleteFunc(slices.Clone(p.Trips), func(t Trip) bool { return t.APIServer != a.Name })
	nodes, waits := awaited(own)
	verdict, reason, text := Healthy, "", fmt.Sprintf("%d of %s made one", len(own)-nodes, plural(len(own), "node"))
	if slices.ContainsFunc(a.Plugins, func(plugin Plugin) bool { return plugin.State.Unhealthy() }) {
		text += " or tried in vain"
	}
	if len(own) == 0 {
		verdict, text = NotKnown, nothingReported
	} else if nodes > 0 {
		verdict, reason, text = NotKnown, contract.RoundTripAwaited, text+"; still awaited: "+waits
	}
	p.add(a, "Round trip", verdict, reason, text)
	return verdict == Healthy
}

// checkSame adds a check that all nodes that report something report the same, and returns it; empty: it does not hold.
func (p *Preflight) checkSame(a *APIServer, name string, of byNode, reason string) (same string) {
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

func (v byNode) add(node, value string) { v[node] = append(v[node], value) }

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
