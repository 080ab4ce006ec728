package show

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// below is the text about a whole target; may be empty.
func below(t *view.TargetStatus, o Options) string {
	var b strings.Builder
	if len(t.Conditions) > 0 {
		fmt.Fprintf(&b, "%s, as the operator last wrote:\n", name(t))
	}
	agreement := false
	for _, c := range t.Conditions {
		agreement = agreement || c.Type == contract.WriteKeyAgreed
		b.WriteString(condition(&c, o.Width))
		if c.Type == contract.PluginsDegraded && c.Status == operatorcr.False && slices.ContainsFunc(t.Plugins, func(p view.Plugin) bool { return p.State.Unhealthy() }) {
			b.WriteString(wrap("A report above differs: the operator is not running, or expects no such node.", indent, indent, o.Width))
		}
	}
	if len(t.WriteKey.Nodes) > 0 && (!agreement || o.Doubtful) {
		b.WriteString(wrap(fmt.Sprintf("%s, by the reports: %s", name(t), agreed(&t.WriteKey, o.Wide)), "", indent, o.Width))
	}
	if len(t.Rotation) > 0 {
		fmt.Fprintf(&b, "%s, as the rotation controller last wrote:\n", name(t))
	}
	for _, c := range t.Rotation {
		b.WriteString(condition(&c, o.Width))
	}
	return b.String()
}

func name(t *view.TargetStatus) string {
	if t.Target == "" {
		return "the reporter's output"
	}
	return clean(t.Target)
}

// condition with its message. A message of several lines begins below.
func condition(c *view.Condition, width int) string {
	head := fmt.Sprintf("%s=%s (%s)", clean(c.Type), clean(c.Status), clean(c.Reason))
	lines := strings.Split(strings.TrimSpace(c.Message), "\n")
	if len(lines) == 1 && strings.TrimSpace(clean(lines[0])) != "" {
		head += ": " + clean(lines[0])
	}
	if len(lines) == 1 {
		return wrap(head, "  ", indent, width)
	}
	var b strings.Builder
	b.WriteString(wrap(head+":", "  ", indent, width))
	for _, line := range lines {
		b.WriteString(wrap(clean(line), indent, indent+"  ", width))
	}
	return b.String()
}

// agreed is the text on whether the nodes agree on the key that they write with.
func agreed(w *rollup.Agreement, wide bool) string {
	id := func(s string) string {
		if wide {
			return clean(s)
		}
		return cut(clean(s), 64)
	}
	if w.KeyID == "" {
		return unlike(w)
	}
	key := "key " + clean(w.KeyID)
	if w.Agreed {
		return fmt.Sprintf("%s with %s and the KEK ID %s", every(len(w.Nodes)), key, id(w.KEKID))
	}
	// Each state once, with all nodes that have it, in the order of the nodes.
	var parts []string
	nodes := map[string][]string{}
	add := func(words, node string) {
		if _, known := nodes[words]; !known {
			parts = append(parts, words)
		}
		nodes[words] = append(nodes[words], orDash(node))
	}
	differ := slices.ContainsFunc(w.Nodes, func(n rollup.NodeAgreement) bool { return n.Answer == contract.Differs })
	for _, n := range w.Nodes {
		switch n.Answer {
		case contract.Differs:
			add(id(n.KEKID)+" on ", n.Node)
		case contract.Missing:
			add("no report that can be read on ", n.Node)
		case contract.OutOfDate:
			add("out of date on ", n.Node)
		case contract.NotHealthy:
			add("not healthy, or without a KEK ID, on ", n.Node)
		}
	}
	for i, words := range parts {
		parts[i] = words + strings.Join(nodes[words], ", ")
	}
	head := key + ", not agreed on yet: "
	if differ {
		head = key + ", the nodes report different KEK IDs: "
	}
	return head + strings.Join(parts, "; ")
}

func every(nodes int) string {
	if nodes == 1 {
		return "the one node writes"
	}
	return fmt.Sprintf("all %d nodes write", nodes)
}

// unlike is the text on which nodes write with which key.
func unlike(w *rollup.Agreement) string {
	var firsts []string
	nodes := map[string][]string{}
	for _, n := range w.Nodes {
		if n.First == "" {
			continue
		}
		if !slices.Contains(firsts, n.First) {
			firsts = append(firsts, n.First)
		}
		nodes[n.First] = append(nodes[n.First], orDash(n.Node))
	}
	if len(firsts) == 0 {
		return "no node reports which key it writes with"
	}
	slices.Sort(firsts)
	for i, key := range firsts {
		firsts[i] = "key " + clean(key) + " on " + strings.Join(nodes[key], ", ")
	}
	return "the nodes write with different keys: " + strings.Join(firsts, "; ")
}
