package rollup

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// writeKeyAgreed is the condition WriteKeyAgreed: whether all API servers write with one key, which
// it sets in the result, and one KEK ID behind it, by healthy plugins, freshly reported.
func (e *evaluation) writeKeyAgreed() operatorstatus.Condition {
	c := operatorstatus.Condition{Type: contract.WriteKeyAgreed, Status: operatorstatus.Unknown}
	servers := e.Nodes
	if e.Alone {
		servers = nil
	}
	key := e.agreedKey(servers)
	switch {
	case e.NoWriteKey:
		c.Reason, c.Message = contract.NoWriteKey, "no KMS plugin encrypts new data"
		return c
	case key == "":
		c.Reason, c.Message = contract.WriteKeyUnknown, "the key that encrypts new data is not known"
		return c
	}
	found, kekIDs := e.disagreements(key, servers)
	switch {
	case len(found) > 0:
		c.Status = e.describe(&c, found).Agreed
	case len(servers) == 0:
		c.Reason, c.Message = contract.ReportsMissing, "no report yet"
	default:
		e.result.KeyID, e.result.KEKID = key, kekIDs.UnsortedList()[0]
		c.Status, c.Reason = operatorstatus.True, contract.AsExpected
		c.Message = contract.Marshal(struct {
			KeyID string `json:"keyID"`
			KEKID string `json:"kekID"`
		}{key, e.result.KEKID})
	}
	return c
}

// agreedKey is the key to agree on: the configuration's, else the one that every API server
// writes with, where that is known. Empty: they write with several keys, or none is known.
func (e *evaluation) agreedKey(servers []Node) string {
	if e.WriteKey != "" {
		return e.WriteKey
	}
	keys := sets.New[string]()
	for _, n := range servers {
		if n.WriteKey != "" && !n.WriteKeyNotKnown {
			keys.Insert(n.WriteKey)
		}
	}
	if keys.Len() != 1 {
		return ""
	}
	return keys.UnsortedList()[0]
}

// disagreements are why API servers do not agree on a key, by node, and the KEK IDs that they report
// behind it.
func (e *evaluation) disagreements(key string, servers []Node) (found []Finding, kekIDs sets.Set[string]) {
	add := func(node, reason, text string) {
		found = append(found, Finding{Reason: reason, Node: node, Key: key, Text: text})
	}
	reported := map[string]string{} // by node
	for i, n := range slices.Concat(servers, e.Others) {
		switch {
		case n.WriteKeyNotKnown || n.Keys == nil:
			add(n.Name, contract.WriteKeyUnknown, keyNotKnown)
		case n.WriteKey == "":
			add(n.Name, contract.WriteKeyNotDeployed, "not in use yet: the API server writes without KMS")
		case n.WriteKey != key:
			add(n.Name, contract.WriteKeyNotDeployed, "not in use yet: the API server writes with key "+keyName(n.WriteKey))
		case i >= len(servers): // it need not report
		default:
			id, reason, text := e.reportedKEK(n.Name, key)
			if reason != "" {
				add(n.Name, reason, text)
			} else {
				reported[n.Name] = id
			}
		}
	}
	kekIDs = sets.New(slices.Collect(maps.Values(reported))...)
	if kekIDs.Len() > 1 {
		for node, id := range reported {
			add(node, contract.KeysDiffer, "KEK ID "+kekName(id))
		}
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Text, b.Text))
	})
	return found, kekIDs
}

// reportedKEK is the KEK ID that a node reports for a key, freshly and of a healthy plugin, or why there
// is none.
func (e *evaluation) reportedKEK(node, key string) (id, reason, text string) {
	rows := e.result.Rows
	at := slices.IndexFunc(rows, func(r Row) bool { return r.Node == node && r.KeyID == key })
	switch {
	case slices.ContainsFunc(rows, func(r Row) bool { return r.Node == node && r.State == Unreadable }):
		return "", contract.ReportUnreadable, notReadable
	case at < 0 || rows[at].State == Missing:
		return "", contract.ReportsMissing, notReported
	case rows[at].State == Stale:
		return "", contract.ReporterStale, noLonger
	case rows[at].State != Healthy || rows[at].KEKID == "":
		return "", contract.PluginUnhealthy, "the plugin is not healthy, or reports no KEK ID"
	}
	return rows[at].KEKID, "", ""
}
