package rollup

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// writeKeyAgreed is the condition WriteKeyAgreed: whether all API servers write with one key, which
// it sets in the result, and one KEK ID behind it, by healthy plugins, freshly reported.
func (e *evaluation) writeKeyAgreed(result *Result) operatorcr.Condition {
	c := operatorcr.Condition{Type: contract.WriteKeyAgreed, Status: operatorcr.Unknown}
	servers, others := e.Nodes, e.Others
	if e.Alone {
		servers, others = nil, nil
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
	found, kekID := e.disagreements(key, servers, others)
	switch {
	case len(found) > 0:
		nodes := map[string]bool{}
		for i := range servers {
			nodes[servers[i].Name] = true
		}
		for _, f := range found {
			nodes[f.Node] = true
		}
		c.Status = e.describe(&c, found, len(nodes)).Agreed
	case len(servers) == 0:
		c.Reason, c.Message = contract.ReportsMissing, "no report yet"
	default:
		result.KeyID, result.KEKID = key, kekID
		c.Status, c.Reason, c.Message = operatorcr.True, contract.AsExpected, agreedMessage(key, kekID)
	}
	return c
}

// agreedKey is the key to agree on: the configuration's, else the one that every API server
// writes with, where that is known. Empty: they write with several keys, or none is known.
func (e *evaluation) agreedKey(servers []Node) string {
	if e.WriteKey != "" {
		return e.WriteKey
	}
	keys := map[string]bool{}
	for i := range servers {
		if n := &servers[i]; n.WriteKey != "" && n.writesKnown() {
			keys[n.WriteKey] = true
		}
	}
	if len(keys) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(keys))[0]
}

// disagreements are why nodes do not agree on a key, one of each; without one, the KEK ID on which
// they do. On a node that has two API servers the one with another key counts.
func (e *evaluation) disagreements(key string, servers []Node, others []Writer) (found []Finding, kekID string) {
	byNode, reported := map[string]Finding{}, map[string]string{}
	for i := range servers {
		n := &servers[i]
		switch {
		case n.NotLoaded:
			const text = "its encryption config was written after its API server started, which may still write with an " +
				"earlier key"
			byNode[n.Name] = Finding{Reason: contract.WriteKeyUnknown, Text: text}
		case !n.writesKnown():
			byNode[n.Name] = Finding{Reason: contract.WriteKeyUnknown, Text: keyNotKnown}
		case n.WriteKey != key:
			byNode[n.Name] = notDeployed(n.WriteKey)
		default:
			id, why := e.reportedKEK(n.Name, key)
			if why.Reason != "" {
				byNode[n.Name] = why
				continue
			}
			reported[n.Name], kekID = id, id
		}
	}
	if sets.New(slices.Collect(maps.Values(reported))...).Len() > 1 {
		for node, id := range reported {
			byNode[node] = Finding{Reason: contract.KeysDiffer, Text: "KEK ID " + kekName(id)}
		}
	}
	for _, o := range others {
		switch {
		case o.WriteKey == key, o.NotKnown && byNode[o.Node].Reason == contract.WriteKeyNotDeployed: // which is worse
		case o.NotKnown:
			byNode[o.Node] = Finding{Reason: contract.WriteKeyUnknown, Text: keyNotKnown}
		default:
			byNode[o.Node] = notDeployed(o.WriteKey)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		f := byNode[node]
		f.Node, f.Key = node, key
		found = append(found, f)
	}
	return found, kekID
}

// notDeployed is an API server that writes with another key, or without KMS.
func notDeployed(writeKey string) Finding {
	f := Finding{Reason: contract.WriteKeyNotDeployed, Text: "not in use yet: the API server writes without KMS"}
	if writeKey != "" {
		f.Text = "not in use yet: the API server writes with key " + keyName(writeKey)
	}
	return f
}

// reportedKEK is the KEK ID that a node reports for a key, freshly and of a healthy plugin, or why there
// is none.
func (e *evaluation) reportedKEK(node, key string) (id string, why Finding) {
	rows := e.byNode[node]
	at := slices.IndexFunc(rows, func(r Row) bool { return r.KeyID == key })
	switch {
	case slices.ContainsFunc(rows, func(r Row) bool { return r.State == Unreadable }):
		return "", Finding{Reason: contract.ReportUnreadable, Text: notReadable}
	case at < 0 || rows[at].State == Missing:
		return "", Finding{Reason: contract.ReportsMissing, Text: notReported}
	case rows[at].State == Stale:
		return "", Finding{Reason: contract.ReporterStale, Text: noLonger}
	case rows[at].State != Healthy || rows[at].KEKID == "" || rows[at].KEKID == contract.UnknownRemoteKeyID:
		return "", Finding{Reason: contract.PluginUnhealthy, Text: "the plugin is not healthy, or reports no KEK ID"}
	}
	return rows[at].KEKID, Finding{}
}

// agreedMessage is the message of a WriteKeyAgreed that is True: a JSON object
// with keyID, and the kekID that all nodes report.
func agreedMessage(keyID, kekID string) string {
	return contract.Marshal(struct {
		KeyID string `json:"keyID"`
		KEKID string `json:"kekID"`
	}{keyID, kekID})
}
