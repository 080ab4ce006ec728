package view

import (
	"slices"
	"strings"
)

// line is one of an operator's condition, which says something of nodes:
//
//	key 2 on node a: unhealthy: vault is sealed; see kubectl -n kms logs plugin-a
//	nodes a, b and 4 more: not reported yet
//	all 3 nodes: stopped reporting
type line struct {
	key     string // empty: it is of the whole node
	nodes   []string
	all     bool
	missing bool   // they never reported
	look    string // a command that shows more, of the first node
}

// lines takes a condition's message apart. What it does not know it passes over.
func lines(message string) []line {
	var all []line
	for text := range strings.SplitSeq(message, "\n") {
		head, what, ok := strings.Cut(text, ": ")
		if !ok {
			continue
		}
		var l line
		where := head
		if key, after, of := strings.Cut(head, " on "); of && strings.HasPrefix(key, "key ") {
			l.key, where = strings.TrimPrefix(key, "key "), after
		}
		if strings.HasPrefix(where, "all ") && strings.HasSuffix(where, " nodes") {
			l.all = true
		} else if names, several := strings.CutPrefix(where, "nodes "); several {
			names, _, _ = strings.Cut(names, " and ")
			l.nodes = strings.Split(names, ", ")
		} else if name, one := strings.CutPrefix(where, "node "); one {
			l.nodes = []string{name}
		} else {
			continue
		}
		// The plugin's own words may hold the same: the last is the operator's.
		if at := strings.LastIndex(what, "; see "); at >= 0 {
			what, l.look = what[:at], what[at+len("; see "):]
		}
		l.missing = what == "not reported yet"
		all = append(all, l)
	}
	return all
}

// looks are the commands that the operator knows to show more of a node and one of
// its keys, in the order in which its conditions name them.
func (t *TargetStatus) looks(node, key string) []string {
	var looks []string
	for _, c := range t.Conditions {
		for _, l := range lines(c.Message) {
			// Of several nodes, the command is the first one's.
			first := len(l.nodes) > 0 && l.nodes[0] == node && (l.key == "" || l.key == key)
			if first && harmless(l.look) && !slices.Contains(looks, l.look) {
				looks = append(looks, l.look)
			}
		}
	}
	return looks
}

// said are the lines of a condition that speak of a node.
func (c *Condition) said(node string) []string {
	var said []string
	for text := range strings.SplitSeq(c.Message, "\n") {
		for _, l := range lines(text) {
			if l.all || slices.Contains(l.nodes, node) {
				said = append(said, text)
			}
		}
	}
	return said
}
