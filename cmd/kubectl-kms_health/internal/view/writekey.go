package view

import (
	"slices"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// WriteKey says whether all nodes write with one and the same remote key, by the
// reports. Nodes that are known, and do not report, do not agree.
type WriteKey struct {
	// KeyID is the key that every node that reports names first; empty when they
	// name several.
	KeyID string `json:"keyID,omitempty"`
	// Agreed is that of the contract: every node freshly and healthily names KEKID.
	Agreed bool           `json:"agreed"`
	KEKID  string         `json:"kekID,omitempty"`
	Nodes  []WriteKeyNode `json:"nodes"`
}

// WriteKeyNode is what one node says of it.
type WriteKeyNode struct {
	Node string `json:"node"`
	// First is the key that the node names first; empty where it names none.
	First  string        `json:"first,omitempty"`
	Answer health.Answer `json:"answer,omitempty"` // none while KeyID is empty
	KEKID  string        `json:"kekID,omitempty"`
}

// writeKey goes by rows, which are by node.
func writeKey(rows []rollup.Row, now time.Time) WriteKey {
	w := WriteKey{Nodes: []WriteKeyNode{}}
	var names, firsts []string
	for _, row := range rows {
		n := len(w.Nodes)
		if n == 0 || w.Nodes[n-1].Node != row.Node {
			w.Nodes = append(w.Nodes, WriteKeyNode{Node: row.Node})
			names = append(names, row.Node)
			n++
		}
		if last := &w.Nodes[n-1]; last.First == "" && row.State != rollup.Missing {
			last.First = row.KeyID
		}
	}
	for _, n := range w.Nodes {
		if n.First != "" && !slices.Contains(firsts, n.First) {
			firsts = append(firsts, n.First)
		}
	}
	if len(firsts) != 1 {
		return w
	}
	w.KeyID = firsts[0]
	entries := map[string][]health.Entry{}
	for _, row := range rows {
		if row.KeyID == w.KeyID && row.State != rollup.Missing {
			entries[row.Node] = []health.Entry{row.Entry}
		}
	}
	agreement := health.KeyAgreement(entries, names, w.KeyID, now)
	w.Agreed, w.KEKID = agreement.Agreed, agreement.KEKID
	for i, n := range agreement.Nodes { // sorted by name, as rows are
		w.Nodes[i].Answer, w.Nodes[i].KEKID = n.Answer, n.KEKID
	}
	return w
}
