package rollup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// Bounds on a condition's message; kubectl kms-health shows everything.
const (
	maxLines  = 8    // findings
	maxDetail = 256  // bytes of a plugin's own text, of the names of nodes, and of keyIDs
	maxKEKID  = 1024 // bytes of a KEK ID, kube-apiserver's bound
	maxKeyID  = 64   // bytes of a keyID, which the writer of a report chooses
)

// Finding is one observation about a node, or a key on it.
type Finding struct {
	Reason string // also of the condition, where it is the most severe
	Node   string // empty: it is about the delivery, or the API server
	Key    string // empty: the whole node
	Text   string
	Detail string // external text: a plugin's, the kubelet's
	// Excused means that it is no fault: for example, its Node is not Ready, or its API server is being replaced.
	Excused bool
}

// Texts of findings of several conditions.
const (
	notReported  = "not reported yet"
	notReadable  = "the report cannot be read"
	silent       = "stopped reporting"
	notConfirmed = "last reported before the operator restarted; whether it still reports is known within minutes"
	keyNotKnown  = "the key that its API server writes with is not known: its pod or its encryption config cannot be " +
		"read, or the config changed after the API server had started"
)

// text is the findings as text for people. Equal ones of several nodes are one line.
func text(findings []Finding) string {
	var all []Finding
	nodes := map[Finding][]string{}
	kind := func(f Finding) Finding { f.Node = ""; return f }
	for _, f := range findings {
		of := nodes[kind(f)]
		if len(of) == 0 {
			all = append(all, f)
		}
		if !slices.Contains(of, f.Node) {
			nodes[kind(f)] = append(of, f.Node)
		}
	}
	var lines []string
	for _, f := range all[:min(len(all), maxLines)] {
		lines = append(lines, f.line(nodes[kind(f)]))
	}
	if more := len(all) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more; see kubectl kms-health status", more))
	}
	return strings.Join(lines, "\n")
}

// line is the finding, of all these nodes.
func (f *Finding) line(nodes []string) string {
	line := f.Text
	if f.Node != "" {
		where := "node " + f.Node
		if len(nodes) > 1 {
			where = "nodes " + contract.Cut(strings.Join(nodes, ", "), maxDetail)
		}
		if f.Key != "" {
			where = "key " + keyName(f.Key) + " on " + where
		}
		line = where + ": " + line
	}
	if f.Detail != "" {
		line += ": " + contract.Cut(contract.CleanDetail(f.Detail), maxDetail)
	}
	return line
}

// describe sets a condition's reason and message from findings, the most severe first, and returns its reason's row.
func (e *evaluation) describe(c *operatorstatus.Condition, findings []Finding) contract.Row {
	findings = slices.Clone(findings)
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return contract.Severity(a.Reason) - contract.Severity(b.Reason)
	})
	findings = slices.Compact(findings) // of two keys of one node, for example
	e.result.Findings[c.Type] = slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool {
		row := contract.RollupReasonOf(f.Reason)
		return f.Excused || !row.Alerted && !row.NeedsAction
	})
	row := contract.RollupReasonOf(findings[0].Reason)
	c.Reason, c.Message = row.Name, text(findings)
	return row
}

// keyName is a keyID, cleaned and shortened for display.
func keyName(id string) string { return contract.Cut(contract.CleanDetail(id), maxKeyID) }

// kekName is a KEK ID, cleaned for display, but whole: they usually differ at their ends.
func kekName(id string) string { return contract.Cut(contract.CleanDetail(id), maxKEKID) }

// ofNodes is a text about one node or several.
func ofNodes(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(several, n)
}
