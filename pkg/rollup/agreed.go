package rollup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Agreement is whether all API servers write with one key, and one KEK ID behind it.
type Agreement struct {
	// KeyID is the key to agree on: the configuration's, else the one that every API server
	// writes with, where that is known. Empty: they write with several keys, or none is known.
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
	// First is the key that the API server writes with, by its own plugin set. Empty: none, or
	// not known.
	First  string          `json:"first,omitempty"`
	Answer contract.Answer `json:"answer,omitempty"` // empty while KeyID is
	KEKID  string          `json:"kekID,omitempty"`
}

const (
	// OtherKey is the Answer of a node that writes with another key than KeyID, or without KMS.
	OtherKey contract.Answer = "otherKey"
	// KeyNotKnown is that of a node of which it is not known what it writes with.
	KeyNotKnown contract.Answer = "keyNotKnown"
	// KeyNotLoaded is that of a node whose API server may not have loaded its configuration.
	KeyNotLoaded contract.Answer = "keyNotLoaded"
)

// Agree returns whether the nodes agree, by their rows, and whether no other API server writes
// with another key. writeKey is the configuration's; empty: not known.
func Agree(rows []Row, nodes []Node, others []Writer, writeKey string, now time.Time) Agreement {
	a := Agreement{KeyID: writeKey, Nodes: make([]NodeAgreement, 0, len(nodes))}
	var keys []string
	for i := range nodes {
		n := NodeAgreement{Node: nodes[i].Name, Answer: KeyNotKnown}
		switch {
		case nodes[i].writesKnown():
			n.First, n.Answer = nodes[i].WriteKey, ""
		case nodes[i].NotLoaded:
			n.Answer = KeyNotLoaded
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
		a.answer(rows, now)
		a.contradict(others)
	}
	return a
}

// contradict ends the agreement while others write with another key, or with one that is not
// known. On a node that has two API servers the other key counts.
func (a *Agreement) contradict(others []Writer) {
	for _, o := range others {
		n := NodeAgreement{Node: o.Node, First: o.WriteKey, Answer: OtherKey}
		at, is := a.find(o.Node)
		switch {
		case o.NotKnown && is && a.Nodes[at].Answer == OtherKey:
			continue // this is worse
		case o.NotKnown:
			n.Answer = KeyNotKnown
		case o.WriteKey == a.KeyID:
			continue
		}
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
	return slices.BinarySearchFunc(a.Nodes, node, func(n NodeAgreement,
		name string) int {
		return strings.Compare(n.Node, name)
	})
}

func (a *Agreement) answer(rows []Row, now time.Time) {
	entries := map[string][]contract.Entry{}
	for _, row := range rows {
		if row.KeyID == a.KeyID && row.State != Missing {
			entries[row.Node] = []contract.Entry{row.Entry}
		}
	}
	var writers []string
	for i := range a.Nodes {
		switch n := &a.Nodes[i]; {
		case n.Answer != "":
		case n.First != a.KeyID:
			n.Answer = OtherKey
		default:
			writers = append(writers, n.Node)
		}
	}
	among := contract.KeyAgreement(entries, writers, a.KeyID, now)
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
	c := operatorcr.Condition{Type: contract.WriteKeyAgreed, Status: operatorcr.Unknown}
	switch {
	case e.NoWriteKey:
		c.Reason, c.Message = contract.NoWriteKey, "no KMS plugin encrypts new data"
		return c
	case a.KeyID == "":
		c.Reason, c.Message = contract.WriteKeyUnknown, "the key that encrypts new data is not known"
		return c
	case a.Agreed:
		c.Status, c.Reason, c.Message = operatorcr.True, contract.AsExpected, AgreedMessage(a.KeyID, a.KEKID)
		return c
	case len(a.Nodes) == 0:
		c.Reason, c.Message = contract.ReportsMissing, "no report yet"
		return c
	}
	var found []Finding
	for _, n := range a.Nodes {
		if f := e.agreementFinding(a, n); f.Reason != "" {
			found = append(found, f)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return order(b.Reason == contract.KeysDiffer,
			a.Reason == contract.KeysDiffer)
	})
	worst := mostSevere(found)
	c.Status, c.Reason = worst.Agreed, worst.Reason
	e.describe(&c, found, len(a.Nodes))
	return c
}

// agreementFinding is why a node does not agree; without a Reason: it does not prevent
// the agreement.
func (e *evaluation) agreementFinding(a *Agreement, n NodeAgreement) Finding {
	f := Finding{Node: n.Node, Key: a.KeyID}
	switch n.Answer {
	case contract.Differs:
		f.Reason, f.Subject = contract.KeysDiffer, kekName(n.KEKID)
	case KeyNotKnown:
		f.Reason = contract.WriteKeyUnknown
	case KeyNotLoaded:
		f.Reason, f.Fact = contract.WriteKeyUnknown, NotLoaded
	case OtherKey:
		f.Reason, f.Subject = contract.WriteKeyNotDeployed, keyName(n.First)
	case contract.NotHealthy:
		f.Reason, f.Fact = contract.PluginUnhealthy, NoKEKID
	case contract.OutOfDate:
		f.Reason = contract.ReporterStale
	case contract.Missing:
		f.Reason = contract.ReportsMissing
	default:
		return Finding{}
	}
	for _, row := range e.byNode[n.Node] {
		known := n.Answer == contract.Differs || n.Answer == OtherKey || f.Reason == contract.WriteKeyUnknown
		if row.State == Unreadable && !known {
			f.Reason = contract.ReportUnreadable
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
