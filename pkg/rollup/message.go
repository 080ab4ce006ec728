package rollup

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kms-health/kms-health/pkg/health"
)

// Bounds on what a condition says; kubectl kms-health says all of it.
const (
	maxLines  = 8   // findings
	maxNames  = 5   // nodes in a finding
	maxDetail = 256 // bytes of a plugin's own words
	maxKEKID  = 64  // bytes of a remote key's id, where several are named
	maxKeyID  = 64  // bytes of a keyID, which a reporter chooses, too
	maxKeyIDs = 5   // keyIDs that a node's pod has, or that it reports on
)

// finding is one thing to say of one node.
type finding struct {
	reason string
	node   string
	key    string // empty: it is of the whole node
	what   string // a predicate of the node, or of the key on it
	detail string // somebody else's words
	look   string // a command that shows more
}

// ill says what an ill plugin answered.
func (f finding) ill(s health.Status) finding {
	f.reason, f.what = PluginError, "error"
	if s == health.Unhealthy {
		f.reason, f.what = PluginUnhealthy, "unhealthy"
	}
	return f
}

type findings []finding

// add keeps a finding, once.
func (f *findings) add(one finding) {
	if n := len(*f); n > 0 && (*f)[n-1] == one {
		return
	}
	*f = append(*f, one)
}

// reason is the first of those given that some finding has.
func (f findings) reason(order ...string) string {
	for _, reason := range order {
		if slices.ContainsFunc(f, func(one finding) bool { return one.reason == reason }) {
			return reason
		}
	}
	return ""
}

// line is what one or more nodes have in common.
type line struct {
	finding
	nodes []string
}

// lines says each thing once, in the order in which it was found: by node. What
// differs by numbers in others' words alone is one thing, or a time that ticks on
// two nodes would part and join them again and again.
func (f findings) lines() []line {
	type same struct{ reason, key, what, detail string }
	places := map[same]int{}
	var all []line
	for _, one := range f {
		k := same{one.reason, one.key, one.what, withoutNumbers(one.detail)}
		at, known := places[k]
		if !known {
			at = len(all)
			places[k] = at
			all = append(all, line{finding: one})
		}
		if l := &all[at]; !slices.Contains(l.nodes[max(0, len(l.nodes)-1):], one.node) {
			l.nodes = append(l.nodes, one.node)
		}
	}
	return all
}

// text is what the findings say, a line each.
func (f findings) text(nodes int) string {
	same := func(s string) string { return s }
	return f.render(nodes, same, same)
}

// pattern matches the text, and what differs from it by numbers in others' words
// alone.
func (f findings) pattern(nodes int) string {
	return `^` + f.render(nodes, regexp.QuoteMeta, numbersDiffer) + `$`
}

func (f findings) render(nodes int, own, others func(string) string) string {
	all := f.lines()
	var lines []string
	for _, l := range all[:min(len(all), maxLines)] {
		text := own(l.head(nodes))
		if l.detail != "" {
			text += ": " + others(shorten(health.CleanDetail(l.detail), maxDetail))
		}
		if l.look != "" {
			text += own("; see " + l.look)
		}
		lines = append(lines, text)
	}
	if more := len(all) - maxLines; more > 0 {
		lines = append(lines, own(fmt.Sprintf("and %d more; see kubectl kms-health status", more)))
	}
	return strings.Join(lines, "\n")
}

// head is the line without others' words.
func (l line) head(nodes int) string {
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
	if l.key != "" {
		where = "key " + keyName(l.key) + " on " + where
	}
	return where + ": " + l.what
}

// say puts findings into a condition. A message that stands, and differs from the
// new one by numbers in others' words alone, stays: a time that ticks in a
// plugin's answer is no news.
func (e *evaluation) say(c *Condition, all findings) {
	c.Message = all.text(len(e.nodes))
	was, had := e.Previous[c.Type]
	if !had || was.Status != c.Status || was.Reason != c.Reason || was.Message == c.Message {
		return
	}
	if p, err := regexp.Compile(all.pattern(len(e.nodes))); err == nil && p.MatchString(was.Message) {
		c.Message = was.Message
	}
}

// withoutNumbers is a text less its words with digits.
func withoutNumbers(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if hasDigit(w) {
			words[i] = "0"
		}
	}
	return strings.Join(words, " ")
}

func hasDigit(word string) bool { return strings.ContainsAny(word, "0123456789") }

// numbersDiffer matches a text, and what differs from it in words with digits.
func numbersDiffer(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if hasDigit(w) {
			words[i] = `\S+`
		} else {
			words[i] = regexp.QuoteMeta(w)
		}
	}
	return strings.Join(words, " ")
}

// shorten cuts at a rune, and marks it.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

func allOf(nodes int) string {
	if nodes == 1 {
		return "the one node"
	}
	return fmt.Sprintf("all %d nodes", nodes)
}

func keys(ids []string) string {
	if len(ids) == 0 {
		return "no key"
	}
	if len(ids) == 1 {
		return "key " + keyName(ids[0])
	}
	sorted := slices.Sorted(slices.Values(ids))
	more := ""
	if n := len(sorted) - maxKeyIDs; n > 0 {
		sorted, more = sorted[:maxKeyIDs], fmt.Sprintf(" and %d more", n)
	}
	for i := range sorted {
		sorted[i] = keyName(sorted[i])
	}
	return "keys " + strings.Join(sorted, ", ") + more
}

// keyName is a keyID that is fit to be shown.
func keyName(id string) string { return shorten(health.CleanDetail(id), maxKeyID) }

// kekName is a remote key's id that is fit to be shown. It is cut in its middle:
// ids differ at their ends, by their versions above all.
func kekName(id string) string {
	id = health.CleanDetail(id)
	if len(id) <= maxKEKID {
		return id
	}
	start := len(id) - maxKEKID/2
	for start < len(id) && !utf8.RuneStart(id[start]) {
		start++
	}
	return shorten(id, maxKEKID/2) + id[start:]
}
