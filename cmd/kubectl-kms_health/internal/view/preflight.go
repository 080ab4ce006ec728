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

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Preflight is a Status, and what a change of keys, plugins or API servers needs besides.
type Preflight struct {
	Status
	// Request is that of the round trips; empty: none was made.
	Request string  `json:"request,omitempty"`
	Trips   []Trip  `json:"trips"`
	Checks  []Check `json:"checks"`
}

// Trip is whether the plugins of a node made a round trip since the preflight began.
type Trip struct {
	APIServer string `json:"apiServer"`
	Node      string `json:"node"`
	Done      bool   `json:"done"`
	// Waits is what it waits for; empty if it is done.
	Waits string `json:"waits,omitempty"`
}

// Check is one precondition, of one API server.
type Check struct {
	APIServer string `json:"apiServer"`
	Name      string `json:"name"`
	// Verdict is Healthy if it holds. NotChecked changes no overall verdict: this cluster has no operator, or no
	// encryption config that it reads.
	Verdict Verdict `json:"verdict"`
	Summary string  `json:"summary"`
	// Reason is a name that explain has a block for, and Fix and DoNot are of that.
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	DoNot  string `json:"doNot,omitempty"`
}

// NotChecked is the verdict of a Check that is not possible in this cluster.
const NotChecked Verdict = "NotChecked"

// Trips follows round trips over several statuses of one cluster.
type Trips struct {
	// Request is what was requested; Regular is why it was not, by API server.
	Request string
	Regular map[string]string

	first map[string][2]time.Time // round trip and check of the first status, by API server, node and key
}

// NoRequest is why a request for a round trip does not reach an API server's reporters; empty: it does.
func (s *Status) NoRequest(apiServer string) string {
	if s.Operator.State != OperatorWorks && s.Operator.State != OperatorNotKnown {
		return "no operator runs that hands a request on"
	}
	file, server := s.configured(apiServer)
	switch {
	case file != nil && file.ManagementState != v1alpha1.Managed:
		return "managementState is " + string(file.ManagementState)
	case server != nil && server.OwnerInjects():
		return "the owner of its pods writes the reporters' files"
	}
	return ""
}

// Narrow drops API servers that neither report a plugin nor have a condition of the operator, if others remain.
func (s *Status) Narrow() {
	used := slices.DeleteFunc(slices.Clone(s.APIServers), func(a APIServer) bool {
		return len(a.Plugins)+len(a.Conditions) == 0
	})
	if len(used) > 0 {
		s.APIServers = used
	}
}

// configured is the operator's file and an API server in it; nil where they are not known.
func (s *Status) configured(apiServer string) (*v1alpha1.OperatorConfiguration, *v1alpha1.APIServer) {
	object := s.snapshot.find(KindConfigMap)
	if object == nil {
		return nil, nil
	}
	file, err := configurationOf(object)
	if err != nil {
		return nil, nil
	}
	at := slices.IndexFunc(file.APIServers, func(a v1alpha1.APIServer) bool { return a.Name == apiServer })
	if at < 0 {
		return file, nil
	}
	return file, &file.APIServers[at]
}

// Follow returns each node's trip. One is done if each of its entries has the request, or shows a round trip which
// the first status did not have; where no request was made also if it shows a new check of a plugin that is not healthy.
func (t *Trips) Follow(s *Status) (all []Trip) {
	if t.first == nil {
		t.first = map[string][2]time.Time{}
	}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			if len(all) == 0 || all[len(all)-1].Node != p.Node || all[len(all)-1].APIServer != a.Name {
				all = append(all, Trip{APIServer: a.Name, Node: p.Node, Done: true})
			}
			trip := &all[len(all)-1]
			if waits := t.waits(a.Name, &p); waits != "" {
				trip.Done, trip.Waits = false, waits
			}
		}
	}
	return all
}

// waits is what a plugin waits for; empty: it is done.
func (t *Trips) waits(apiServer string, p *Plugin) string {
	now := [2]time.Time{p.RoundTrip.Time, p.LastChecked.Time}
	key := apiServer + "/" + p.Node + "/" + p.KeyID
	first, known := t.first[key]
	if !known {
		t.first[key], first = now, now
	}
	regular := t.Regular[apiServer] != ""
	switch {
	case p.State == rollup.Missing:
		return "a first report"
	case p.State == rollup.Unreadable:
		return "a report that can be read"
	case p.State == rollup.Stale:
		return "a new report, since the last one is stale"
	case t.Request != "" && p.Requested == t.Request, p.State == rollup.Healthy && !now[0].Equal(first[0]),
		regular && p.State.Unhealthy() && !now[1].Equal(first[1]):
		return ""
	case p.State == rollup.Healthy && p.RoundTrip.IsZero():
		return "a first round trip of key " + p.KeyID + " (they may be turned off)"
	case regular:
		return "the regular round trip of key " + p.KeyID
	}
	return "the requested round trip of key " + p.KeyID
}

// Preflight judges a status, and the trips in it.
func (t *Trips) Preflight(s *Status) *Preflight {
	p := &Preflight{Status: *s, Request: t.Request, Trips: t.Follow(s)}
	p.Kind = "Preflight"
	for i := range p.APIServers {
		p.check(&p.APIServers[i], t)
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
	checked := len(p.Checks) - count[NotChecked]
	switch {
	case count[Unhealthy] > 0 || s.Verdict == Unhealthy:
		p.Verdict = Unhealthy
		p.Summary = fmt.Sprintf("Not ready: %d of %s failed", count[Unhealthy], plural(checked, "check"))
	case count[NotKnown] > 0 || s.Verdict == NotKnown:
		p.Verdict = NotKnown
		p.Summary = fmt.Sprintf("Not known: %d of %s hold", count[Healthy], plural(checked, "check"))
	default:
		p.Verdict, p.Summary = Healthy, fmt.Sprintf("Ready: %s hold", plural(checked, "check"))
	}
	for verdict, text := range map[Verdict]string{NotKnown: "%s, %d not known", NotChecked: "%s, %d not possible here"} {
		if count[verdict] > 0 && (verdict == NotChecked || p.Verdict == Unhealthy) {
			p.Summary = fmt.Sprintf(text, p.Summary, count[verdict])
		}
	}
	p.Summary += "."
	return p
}

// add adds a check; its reason is only set where it does not hold.
func (p *Preflight) add(a *APIServer, name string, verdict Verdict, reason, summary string) {
	if verdict == Healthy {
		reason = ""
	}
	p.Checks = append(p.Checks, Check{APIServer: a.Name, Name: name, Verdict: verdict, Summary: summary, Reason: reason})
}

// check adds the checks of one API server.
func (p *Preflight) check(a *APIServer, t *Trips) {
	p.checkTrips(a, t.Regular[a.Name])
	worst, found := Healthy, 0
	for _, problem := range p.Problems {
		if problem.APIServer == a.Name || problem.APIServer == "" {
			found++
			if worst != Unhealthy {
				worst = problem.Verdict
			}
		}
	}
	if found == 0 {
		p.add(a, "No problem", Healthy, "", "status has none")
	} else {
		p.add(a, "No problem", worst, "", fmt.Sprintf("status has %d, see below", found))
	}
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
	p.checkDelivery(a)
	result := map[string]Verdict{"Succeeded": Healthy, "Failed": Unhealthy}[a.OpenShiftPreflight]
	text := a.OpenShiftPreflight
	for _, c := range a.Conditions {
		if c.Type == contract.PreflightDegraded && !AsExpected(&c) {
			result, text = Unhealthy, explained(&c)
		}
	}
	if text != "" {
		p.add(a, "OpenShift's own preflight", cmp.Or(result, NotKnown), contract.PreflightDegraded, text)
	}
}

// notNamed stands for the KEK ID of a plugin that names none.
const notNamed = "none"

func (p *Preflight) checkTrips(a *APIServer, regular string) {
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
		verdict, text = NotKnown, text+"; still awaited: "+missing
	}
	if regular != "" {
		text += "; a regular one was awaited: " + regular
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
	return c, map[metav1.ConditionStatus]Verdict{operatorstatus.True: Healthy, operatorstatus.False: Unhealthy}[c.Status], ""
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
		p.add(a, name, cmp.Or(verdict, NotKnown), c.Reason, explained(&c))
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

// checkDelivery adds what the operator found out about folders, rights and the encryption config.
func (p *Preflight) checkDelivery(a *APIServer) {
	const delivery, encrypted = "Folders and rights", "Reports not encrypted"
	c, verdict, none := p.condition(a, contract.HealthReporting)
	if none != "" {
		p.add(a, delivery, verdict, "", none)
		p.add(a, encrypted, verdict, "", none)
		return
	}
	isEncrypted := c.Reason == contract.ReportsEncrypted || c.Reason == contract.ConfigMapsEncrypted
	if verdict == Healthy || isEncrypted { // of several reasons that is one of the least severe
		p.add(a, delivery, Healthy, "", "no request of the operator was refused")
	} else {
		p.add(a, delivery, cmp.Or(verdict, NotKnown), c.Reason, explained(&c))
	}
	_, server := p.configured(a.Name)
	switch {
	case isEncrypted:
		p.add(a, encrypted, Unhealthy, c.Reason, c.Message)
	case server != nil && server.EncryptionConfig.Secret == "":
		p.add(a, encrypted, NotChecked, "", "the operator's file has plugins, and no encryption config to read")
	case verdict == Healthy:
		p.add(a, encrypted, Healthy, "", "neither the resource with the reports nor ConfigMaps that reporters mount")
	default:
		p.add(a, encrypted, NotKnown, "", "KMSHealthReporting has another reason first")
	}
}

// byNode are the values of each node.
type byNode map[string][]string

func (v byNode) add(node, value string) { v[node] = append(v[node], value) }

// groups are the different values, of which a KEK ID may be the hash of another, and a text of them with their nodes.
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
