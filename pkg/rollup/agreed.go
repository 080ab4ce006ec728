package rollup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Agreement is whether all API servers write with one key, and one KEK ID behind it.
type Agreement struct {
	// KeyID is the key to agree on: the configuration's, else the one that every node
	// that reports writes with. Empty: they write with several keys, or none is known.
	KeyID string `json:"keyID,omitempty"`
	// Agreed: every node writes with KeyID, and its plugin is healthy, and freshly
	// reported with KEKID.
	Agreed bool   `json:"agreed"`
	KEKID  string `json:"kekID,omitempty"` // empty unless Agreed
	// Nodes are all nodes that must agree, by name.
	Nodes []NodeAgreement `json:"nodes"`
}

// NodeAgreement is one node's part of an Agreement.
type NodeAgreement struct {
	Node string `json:"node"`
	// First is the key that the node writes with: by its own plugin set where that is
	// known, else the first that it reports. Empty: none, or not known.
	First  string        `json:"first,omitempty"`
	Answer health.Answer `json:"answer,omitempty"` // empty while KeyID is
	KEKID  string        `json:"kekID,omitempty"`
}

// OtherKey is the Answer of a node that writes with another key than KeyID, or without
// KMS.
const OtherKey health.Answer = "otherKey"

// Agree returns whether the nodes agree, by their rows, and whether no other API server writes
// with another key. writeKey is the configuration's; empty: not known.
func Agree(rows []Row, nodes []Node, others []Writer, writeKey string, now time.Time) Agreement {
	a := Agreement{KeyID: writeKey, Nodes: make([]NodeAgreement, 0, len(nodes))}
	first := map[string]string{}
	for _, row := range rows {
		if first[row.Node] == "" && row.State != Missing {
			first[row.Node] = row.KeyID
		}
	}
	var keys []string
	for i := range nodes {
		n := NodeAgreement{Node: nodes[i].Name, First: first[nodes[i].Name]}
		if nodes[i].Keys != nil {
			n.First = nodes[i].WriteKey
		}
		if n.First != "" && !slices.Contains(keys, n.First) {
			keys = append(keys, n.First)
		}
		a.Nodes = append(a.Nodes, n)
	}
	slices.SortFunc(a.Nodes, func(a, b NodeAgreement) int { return strings.Compare(a.Node, b.Node) })
	if a.KeyID == "" && len(keys) == 1 {
		a.KeyID = keys[0]
	}
	if a.KeyID != "" {
		a.answer(rows, nodes, now)
		a.contradict(others)
	}
	return a
}

// contradict ends the agreement while others write with another key. On a node that has two
// API servers the other key counts.
func (a *Agreement) contradict(others []Writer) {
	for _, o := range others {
		if o.WriteKey == a.KeyID {
			continue
		}
		n := NodeAgreement{Node: o.Node, First: o.WriteKey, Answer: OtherKey}
		at, is := a.find(o.Node)
		if is {
			a.Nodes[at] = n
		} else {
			a.Nodes = slices.Insert(a.Nodes, at, n)
		}
		a.Agreed, a.KEKID = false, ""
	}
}

// find is the place of a node, and whether it is there.
func (a *Agreement) find(node string) (at int, is bool) {
	return slices.BinarySearchFunc(a.Nodes, node, func(n NodeAgreement, name string) int { return strings.Compare(n.Node, name) })
}

func (a *Agreement) answer(rows []Row, nodes []Node, now time.Time) {
	known := map[string]bool{} // whose plugin set is
	for i := range nodes {
		known[nodes[i].Name] = nodes[i].Keys != nil
	}
	entries := map[string][]health.Entry{}
	for _, row := range rows {
		if row.KeyID == a.KeyID && row.State != Missing {
			entries[row.Node] = []health.Entry{row.Entry}
		}
	}
	var writers []string
	for i := range a.Nodes {
		n := &a.Nodes[i]
		if n.First != a.KeyID && (n.First != "" || known[n.Node]) {
			n.Answer = OtherKey
			continue
		}
		writers = append(writers, n.Node)
	}
	among := health.KeyAgreement(entries, writers, a.KeyID, now)
	for _, one := range among.Nodes {
		at, _ := a.find(one.Node)
		a.Nodes[at].Answer, a.Nodes[at].KEKID = one.Answer, one.KEKID
	}
	if among.Agreed && len(writers) == len(a.Nodes) {
		a.Agreed, a.KEKID = true, among.KEKID
	}
}

// writeKeyAgreed is the agreement as a condition.
func (e *evaluation) writeKeyAgreed(a *Agreement) operatorcr.Condition {
	c := operatorcr.Condition{Type: WriteKeyAgreed, Status: operatorcr.Unknown}
	switch {
	case e.NoWriteKey:
		c.Reason, c.Message = NoWriteKey, "no KMS plugin encrypts new data"
		return c
	case a.KeyID == "":
		c.Reason, c.Message = WriteKeyUnknown, "the key that encrypts new data is not known"
		return c
	case a.Agreed:
		c.Status, c.Reason, c.Message = operatorcr.True, AsExpected, AgreedMessage(a.KeyID, a.KEKID)
		return c
	case len(a.Nodes) == 0:
		c.Reason, c.Message = ReportsMissing, "no report yet"
		return c
	}
	var found []Finding
	for _, n := range a.Nodes {
		if f := e.agreementFinding(a, n); f.Reason != "" {
			found = append(found, f)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return order(b.Reason == KeysDiffer, a.Reason == KeysDiffer) })
	worst := severities[mostSevere(found)]
	c.Status, c.Reason = worst.agreed, string(worst.reason)
	e.describe(&c, found, len(a.Nodes))
	return c
}

// agreementFinding is why a node does not agree; without a Reason: it does not prevent
// the agreement.
func (e *evaluation) agreementFinding(a *Agreement, n NodeAgreement) Finding {
	f := Finding{Node: n.Node, Key: a.KeyID}
	switch n.Answer {
	case health.Differs:
		f.Reason, f.Subject = KeysDiffer, kekName(n.KEKID)
	case OtherKey:
		f.Reason, f.Subject = WriteKeyNotDeployed, keyName(n.First)
	case health.NotHealthy:
		f.Reason, f.Fact = PluginUnhealthy, NoKEKID
	case health.OutOfDate:
		f.Reason = ReporterStale
	case health.Missing:
		f.Reason = ReportsMissing
	default:
		return Finding{}
	}
	for _, row := range e.byNode[n.Node] {
		switch {
		case f.Reason == KeysDiffer || f.Reason == WriteKeyNotDeployed:
		case row.State == Unreadable:
			f.Reason = ReportUnreadable
		case row.State == Skewed && row.KeyID == a.KeyID:
			f.Reason = ClockSkew
		}
	}
	return f
}

// agreedMessage fixes the order of fields.
type agreedMessage struct {
	KeyID string `json:"keyID"`
	KEKID string `json:"kekID"`
}

// AgreedMessage is the message of a WriteKeyAgreed that is True: a JSON object
// with keyID, and the kekID that all nodes report.
func AgreedMessage(keyID, kekID string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // as in reports
	if err := encoder.Encode(agreedMessage{keyID, kekID}); err != nil {
		panic(fmt.Sprintf("marshal two strings: %v", err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
