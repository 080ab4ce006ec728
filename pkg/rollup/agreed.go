package rollup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/health"
)

// writeKey is the key to agree on: the configuration's, else the one that every
// node names first.
func (e *evaluation) writeKey() string {
	if e.WriteKey != "" {
		return e.WriteKey
	}
	key := ""
	for _, n := range e.nodes {
		rows := e.byNode[n.Name]
		if len(rows) == 0 || rows[0].KeyID == "" || key != "" && rows[0].KeyID != key {
			return ""
		}
		key = rows[0].KeyID
	}
	return key
}

// writeKeyAgreed says whether all nodes write with one and the same remote key.
func (e *evaluation) writeKeyAgreed() Condition {
	c := Condition{Type: WriteKeyAgreed, Status: Unknown}
	if e.NoWriteKey {
		c.Reason, c.Message = NoWriteKey, "no plugin encrypts what is written"
		return c
	}
	key := e.writeKey()
	if key == "" {
		c.Reason, c.Message = WriteKeyUnknown, "which plugin encrypts what is written is not known"
		return c
	}
	entries := make(map[string][]health.Entry, len(e.nodes))
	names := make([]string, 0, len(e.nodes))
	for _, n := range e.nodes {
		names = append(names, n.Name)
		for _, row := range e.byNode[n.Name] {
			if row.KeyID == key && row.State != Missing {
				entries[n.Name] = []health.Entry{row.Entry}
			}
		}
	}
	agreement := health.KeyAgreement(entries, names, key, e.Now)
	if agreement.Agreed {
		c.Status, c.Reason, c.Message = True, AsExpected, AgreedMessage(key, agreement.KEKID)
		return c
	}
	var differ, open findings
	for _, n := range agreement.Nodes {
		f := finding{node: n.Node, key: key}
		switch n.Answer {
		case health.Agrees, health.Differs:
			f.reason, f.what = KeysDiffer, "names "+kekName(n.KEKID)
			differ.add(f)
			continue
		case health.Missing:
			f.reason, f.what = ReportsMissing, notYet
		case health.OutOfDate:
			f.reason, f.what = ReporterStale, "no longer reported"
		case health.Ill:
			f.reason, f.what = PluginIll, "its plugin is ill, or names no remote key"
		}
		for _, row := range e.byNode[n.Node] {
			switch {
			case row.State == Unreadable:
				f.reason, f.what = ReportUnreadable, unreadable
			case row.State == Skewed && row.KeyID == key:
				f.reason, f.what = ClockSkew, skewed
			}
		}
		open.add(f)
	}
	if len(agreement.With(health.Differs)) > 0 {
		c.Status, c.Reason = False, KeysDiffer
		e.say(&c, slices.Concat(differ, open))
		return c
	}
	c.Reason = open.reason(PluginIll, ReportUnreadable, ClockSkew, ReporterStale, ReportsMissing)
	if len(open) == 0 {
		c.Reason, c.Message = ReportsMissing, "nothing was reported yet"
		return c
	}
	e.say(&c, open)
	return c
}

// agreedMessage fixes the order of fields.
type agreedMessage struct {
	KeyID string `json:"keyID"`
	KEKID string `json:"kekID"`
}

// AgreedMessage is the message of a WriteKeyAgreed that is True: a JSON object
// with keyID, and the kekID that all nodes name.
func AgreedMessage(keyID, kekID string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // as in reports
	if err := encoder.Encode(agreedMessage{keyID, kekID}); err != nil {
		panic(fmt.Sprintf("marshal two strings: %v", err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
