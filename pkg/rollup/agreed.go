package rollup

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// SettlePeriod is for how long all reporters must name one KEK ID: kube-apiserver may go on writing with the former key
// for 3 minutes (kmsv2PluginWriteDEKSourceMaxTTL in k8s.io/apiserver/pkg/server/options/encryptionconfig).
const SettlePeriod = 180 * time.Second

// AgreedKey is the message of KMSWriteKeyAgreed where it is True.
type AgreedKey struct {
	KeyID string `json:"keyID"`
	KEKID string `json:"kekID"`
	Since string `json:"since,omitempty"`
}

// DecodeAgreedKey reads the message of a KMSWriteKeyAgreed that is True.
func DecodeAgreedKey(message string) (agreed AgreedKey, err error) {
	err = json.Unmarshal([]byte(message), &agreed)
	return agreed, err
}

// writeKeyAgreed is the condition KMSWriteKeyAgreed: whether all API servers write with one key, and healthy, freshly
// reported plugins have named one KEK ID for it for SettlePeriod.
func (e *evaluation) writeKeyAgreed() operatorstatus.Condition {
	c := operatorstatus.Condition{Type: contract.WriteKeyAgreed, Status: operatorstatus.Unknown}
	found, kekIDs := e.disagreements()
	switch {
	case e.Alone:
		c.Reason, c.Message = contract.WriteKeyUnknown, "no pod of the API server shows which key it writes with"
	case e.WriteKey == "" && !e.NoWriteKey:
		c.Reason, c.Message = contract.WriteKeyUnknown, "the key that encrypts new data is not known"
	case len(found) > 0:
		c.Status = e.describe(&c, found).Agreed
	case e.NoWriteKey:
		c.Reason, c.Message = contract.NoWriteKey, "no KMS plugin encrypts new data"
	case len(e.Nodes) == 0:
		c.Reason, c.Message = contract.ReportsMissing, "no report yet"
	default:
		e.settle(&c, kekIDs.UnsortedList()[0])
	}
	return c
}

// settle sets the condition where all reporters name one KEK ID. The period begins when this process has seen all
// their reports change. An agreement that an earlier process has found stays.
func (e *evaluation) settle(c *operatorstatus.Condition, kekID string) {
	key, next, was := e.WriteKey, e.Agreement, e.Previous[c.Type]
	if next.KeyID != key || !contract.SameKEK(next.KEKID, kekID) {
		next = Agreement{AgreedKey: AgreedKey{key, kekID, e.Wall.UTC().Format(time.RFC3339)}, Seen: e.Now}
		stands := !e.Agreement.Evaluated && was.Status == operatorstatus.True
		found, err := DecodeAgreedKey(was.Message)
		if stands && err == nil && found.KeyID == key && contract.SameKEK(found.KEKID, kekID) {
			next.Seen, next.Since = e.Now.Add(-SettlePeriod), found.Since
		}
	}
	if ends := next.Seen.Add(SettlePeriod); e.Now.Before(ends) {
		if len(e.standing) == 0 && e.before(ends) {
			e.result.Agreement = next
		}
		c.Reason = contract.Settling
		c.Message = fmt.Sprintf("all plugins have named KEK ID %s of key %s for less than %d s: an API server may still "+
			"write with the previous one", kekName(kekID), keyName(key), int(SettlePeriod.Seconds()))
		return
	}
	next.KEKID, e.result.Agreement = kekID, next // in the form that reporters name it now
	c.Status, c.Reason, c.Message = operatorstatus.True, contract.AsExpected, contract.Marshal(next.AgreedKey)
}

// disagreements returns why API servers do not agree on the write key, or on none, and the KEK IDs that are reported
// for it.
func (e *evaluation) disagreements() (found []Finding, kekIDs sets.Set[string]) {
	key := e.WriteKey
	add := func(node, reason, text string) {
		found = append(found, Finding{Reason: reason, Node: node, Key: key, Text: text})
	}
	unencrypted := func(f Finding) bool { return f.Reason == contract.EncryptionNotConfigured }
	reported := map[string]string{} // by node
	for i, n := range slices.Concat(e.Nodes, e.Others) {
		switch {
		case slices.ContainsFunc(n.Faults, unencrypted):
			add(n.Name, contract.EncryptionNotConfigured, "not in use: its API server does not encrypt")
		case n.WriteKeyNotKnown || n.Keys == nil:
			add(n.Name, contract.WriteKeyUnknown, keyNotKnown)
		case n.WriteKey == "" && key == "": // as it should
		case n.WriteKey == "":
			add(n.Name, contract.WriteKeyNotDeployed, "not in use yet: the API server writes without KMS")
		case key == "":
			found = append(found, Finding{Reason: contract.WriteKeyNotDeployed, Node: n.Name, Key: n.WriteKey,
				Text: "still in use: the API server writes with it"})
		case n.WriteKey != key:
			add(n.Name, contract.WriteKeyNotDeployed, "not in use yet: the API server writes with key "+keyName(n.WriteKey))
		case n.WriteKeyOfSome != "":
			add(n.Name, contract.WriteKeyOfSome, n.WriteKeyOfSome)
		case len(n.Pods) > 1:
			found = append(found, n.severalPods())
		case i >= len(e.Nodes): // it need not report
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

// reportedKEK returns the KEK ID that a node freshly reports for a key, of a healthy plugin, or why there is none.
// If the plugin did not answer in time, the KEK ID that it named before counts for as long as an entry is valid.
func (e *evaluation) reportedKEK(node, key string) (id, reason, text string) {
	rows := e.result.Rows
	at := slices.IndexFunc(rows, func(r Row) bool { return r.Node == node && r.KeyID == key })
	switch {
	case slices.ContainsFunc(rows, func(r Row) bool { return r.Node == node && r.State == Unreadable }):
		return "", contract.ReportUnreadable, notReadable
	case at < 0 || rows[at].State == Missing:
		return "", contract.ReportsMissing, notReported
	case rows[at].State == Stale:
		return "", contract.ReporterStale, silent
	case rows[at].State == Error && rows[at].Reason == contract.Timeout && rows[at].Named != "" &&
		e.before(rows[at].NamedAt.Add(rows[at].Validity())):
		return rows[at].Named, "", ""
	case rows[at].State != Healthy || rows[at].KEKID == "":
		return "", contract.PluginUnhealthy, "the plugin is not healthy, or reports no KEK ID"
	}
	return rows[at].KEKID, "", ""
}
