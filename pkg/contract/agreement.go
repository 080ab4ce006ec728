package contract

import (
	"slices"
	"time"
)

// Answer is how the report of one node about one key compares with the others.
type Answer string

const (
	// Agrees: fresh, healthy, and the same KEKID as every other such node.
	Agrees Answer = "agrees"
	// Missing: the node has no entry for the key.
	Missing Answer = "missing"
	// OutOfDate: the node's entry is stale, or its clock is skewed.
	OutOfDate Answer = "stale"
	// NotHealthy: the node's entry is fresh and not healthy, or has no KEKID.
	NotHealthy Answer = "notHealthy"
	// Differs: fresh and healthy, but the nodes report more than one KEKID.
	Differs Answer = "differs"
)

// NodeAnswer is an Answer with its node and the KEKID it reported, if any.
type NodeAnswer struct {
	Node   string
	Answer Answer
	KEKID  string
}

// Agreement is the result of KeyAgreement.
type Agreement struct {
	// Agreed is true when there is at least one expected node and every one of
	// them Agrees. Nothing else is agreement.
	Agreed bool
	// KEKID is the one that all agree on; empty unless Agreed.
	KEKID string
	// Nodes holds an answer per expected node, sorted by name.
	Nodes []NodeAnswer
}

// KeyAgreement returns whether all expected nodes, freshly and healthily, report
// one and the same KEKID for keyID: what a key rotation must check before it
// goes on, and about the write key only. entries are by node, as decoded from
// their conditions; those of nodes that are not expected are ignored.
func KeyAgreement(entries map[string][]Entry, expectedNodes []string, keyID string, now time.Time) Agreement {
	nodes := slices.Compact(slices.Sorted(slices.Values(expectedNodes)))
	a := Agreement{Nodes: make([]NodeAnswer, 0, len(nodes))}
	reported := map[string]bool{}
	for _, node := range nodes {
		n := NodeAnswer{Node: node, Answer: Missing}
		if i := slices.IndexFunc(entries[node], func(e Entry) bool { return e.KeyID == keyID }); i >= 0 {
			e := entries[node][i]
			n.KEKID = e.KEKID
			switch {
			case e.Freshness(now) != Fresh:
				n.Answer = OutOfDate
			case e.Status != Healthy || e.KEKID == "" || e.KEKID == UnknownRemoteKeyID:
				n.Answer = NotHealthy
			default:
				n.Answer = Agrees
				reported[e.KEKID] = true
			}
		}
		a.Nodes = append(a.Nodes, n)
	}
	if len(reported) > 1 {
		for i := range a.Nodes {
			if a.Nodes[i].Answer == Agrees {
				a.Nodes[i].Answer = Differs
			}
		}
	}
	a.Agreed = len(nodes) > 0 && !slices.ContainsFunc(a.Nodes, func(n NodeAnswer) bool { return n.Answer != Agrees })
	if a.Agreed {
		a.KEKID = a.Nodes[0].KEKID
	}
	return a
}
