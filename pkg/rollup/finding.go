package rollup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Bounds on a condition's message; kubectl kms-health shows everything.
const (
	maxLines  = 8   // findings
	maxNames  = 5   // nodes in a finding
	maxDetail = 256 // bytes of a plugin's own text
	maxKEKID  = 64  // bytes of a remote key's id, where several are shown
	maxKeyID  = 64  // bytes of a keyID, which the writer of a report chooses
)

// Finding is one observation about a node, or a key on it.
type Finding struct {
	Reason string // also of the condition, where it is the most severe
	Node   string // empty: it is about the delivery, or the API server
	Key    string // empty: the whole node
	Text   string
	Detail string // external text: a plugin's, the kubelet's
	Look   string // a command that shows more
	// Excused means that it is no fault: its Node is not Ready, or its API server is replaced.
	Excused bool
}

// Texts of findings of several conditions.
const (
	notReported = "not reported yet"
	notReadable = "the report cannot be read"
	silent      = "stopped reporting"
	noLonger    = "no longer reported" // one key of several
	keyNotKnown = "the key that its API server writes with is not known: its pod or its encryption config cannot be " +
		"read, or the config was written after its start"
)

// line is a finding that one or more nodes have in common.
type line struct {
	Finding
	nodes []string
}

// inLines joins equal findings of several nodes into one line, in the order of the nodes.
func inLines(findings []Finding) []line {
	places := map[Finding]int{}
	var all []line
	for _, one := range findings {
		k := one
		k.Node, k.Look = "", ""
		at, known := places[k]
		if !known {
			at = len(all)
			places[k] = at
			all = append(all, line{Finding: one})
		}
		if l := &all[at]; !slices.Contains(l.nodes[max(0, len(l.nodes)-1):], one.Node) {
			l.nodes = append(l.nodes, one.Node)
		}
	}
	return all
}

// text is the findings as text for people, one line each.
func text(findings []Finding, nodes int) string {
	all := inLines(findings)
	var lines []string
	for _, l := range all[:min(len(all), maxLines)] {
		line := l.head(nodes)
		if l.Detail != "" {
			line += ": " + contract.Cut(contract.CleanDetail(l.Detail), maxDetail)
		}
		if l.Look != "" {
			line += "; see " + l.Look
		}
		lines = append(lines, line)
	}
	if more := len(all) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more; see kubectl kms-health status", more))
	}
	return strings.Join(lines, "\n")
}

// head is the line without external text.
func (l line) head(nodes int) string {
	if l.Node == "" {
		return l.Text
	}
	var where string
	switch n := len(l.nodes); {
	case n == nodes && n > 1:
		where = fmt.Sprintf("all %d nodes", n)
	case n == 1:
		where = "node " + l.nodes[0]
	case n > maxNames:
		where = fmt.Sprintf("nodes %s and %d more", strings.Join(l.nodes[:maxNames], ", "), n-maxNames)
	default:
		where = "nodes " + strings.Join(l.nodes, ", ")
	}
	if l.Key != "" {
		where = "key " + keyName(l.Key) + " on " + where
	}
	return where + ": " + l.Text
}

// describe sets a condition's reason and message from findings, the most severe first, and returns
// the row of that one. mode comes last in the message. nodes are how many there are.
func (e *evaluation) describe(c *operatorcr.Condition, findings []Finding, nodes int,
	mode ...Finding) contract.Row {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return contract.Severity(a.Reason) - contract.Severity(b.Reason)
	})
	findings = slices.Compact(findings) // of two keys of one node, for example
	e.result.Findings[c.Type] = slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool {
		row := contract.RollupReasonOf(f.Reason)
		return f.Excused || !row.Alerted && !row.NeedsAction
	})
	row := contract.RollupReasonOf(findings[0].Reason)
	c.Reason, c.Message = row.Name, text(append(findings, mode...), nodes)
	return row
}

func allOf(nodes int) string {
	if nodes == 1 {
		return "the one node"
	}
	return fmt.Sprintf("all %d nodes", nodes)
}

// keys names keyIDs, at most maxDetail bytes of them.
func keys(ids []string) string {
	switch len(ids) {
	case 0:
		return "no key"
	case 1:
		return "key " + keyName(ids[0])
	}
	return "keys " + contract.Cut(contract.CleanDetail(strings.Join(slices.Sorted(slices.Values(ids)), ", ")), maxDetail)
}

// keyName is a keyID, cleaned and shortened for display.
func keyName(id string) string { return contract.Cut(contract.CleanDetail(id), maxKeyID) }

// kekName is a remote key's id, cleaned and shortened for display. It is cut in the
// middle: ids usually differ at their ends, in the version.
func kekName(id string) string {
	id = contract.CleanDetail(id)
	if len(id) <= maxKEKID {
		return id
	}
	return contract.Cut(id, maxKEKID/2) + strings.ToValidUTF8(id[len(id)-maxKEKID/2:], "")
}
