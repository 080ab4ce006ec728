//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// kind is a kind of move.
type kind struct {
	name   string
	weight int
	// fault is a command of the development plugin. A report has its reason and detail. A text in place of %s makes each
	// fault's cause unique.
	fault, detail string
	reason        contract.Reason
	// plugin means that the node's plugin is unhealthy during the move.
	plugin bool
	// blinds says whether reports of the node, or of all nodes, may be missing or late during the move, and for settles
	// after it.
	blinds  sight
	settles time.Duration
	// early moves restart programs whose memory is measured in the second half of the run. beside excludes the first node,
	// which has etcd. spoils means that the operator's file is garbage.
	early, beside, spoils bool
	least, most           time.Duration // bounds of its duration
	do                    func(*soak, *move) (end func() error, err error)
}

type sight int

const (
	nothing sight = iota
	ofNode
	ofAll
)

const (
	// namedAfter is the time until a fault must be reported: the plugin's timeout of 10 s, intervals of 3 s, a busy
	// machine. tripAfter is for faults that only a round trip finds, which is made each minute.
	namedAfter, tripAfter = 20 * time.Second, 80 * time.Second
	// endedAfter is the time for which a fault may be reported after its end: a failed round trip is repeated after 15 s.
	endedAfter = 45 * time.Second
)

// move is a move of a run. end is zero while it lasts.
type move struct {
	*kind
	node, text string
	start, end time.Time
	until      time.Time // the end of its excuse, see timeline.settle
	lasts      time.Duration
}

func (m *move) String() string {
	return fmt.Sprintf("%s %s %s from %s for %s", m.name, m.node, m.text, m.start.Format(time.TimeOnly),
		m.end.Sub(m.start).Round(time.Second))
}

// excludes reports whether a kind may not begin on a node during the move: only one move at a time may blind, a plugin
// has only one fault, and no program starts while the operator's file is garbage.
func (m *move) excludes(k *kind, node string) bool {
	return m.kind == k || m.blinds != nothing && k.blinds != nothing || m.node == node && m.plugin && k.plugin ||
		m.spoils && k.early || m.early && k.spoils
}

// draw returns the next move: a kind by weight, a node and a duration, all random.
func draw(random *rand.Rand, kinds []*kind, nodes []string, running []*move, early bool) *move {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	for {
		at := random.IntN(sum)
		next := slices.IndexFunc(kinds, func(k *kind) bool { at -= k.weight; return at < 0 })
		m := &move{kind: kinds[next], node: nodes[random.IntN(len(nodes))]}
		m.lasts = m.least + time.Duration(random.Int64N(int64(m.most-m.least)+1))
		switch {
		case m.early && !early, m.beside && m.node == nodes[0]:
		case !slices.ContainsFunc(running, func(r *move) bool { return r.excludes(m.kind, m.node) }):
			return m
		}
	}
}

// timeline are all moves of a run.
type timeline []*move

// running returns the moves that have not ended.
func (t timeline) running() (all []*move) {
	for _, m := range t {
		if m.end.IsZero() {
			all = append(all, m)
		}
	}
	return all
}

// blind returns the end of the time around at in which a move may prevent reports of a node; zero: no move does. An
// empty node is any node.
func (t timeline) blind(node string, at time.Time) (until time.Time) {
	for _, m := range t {
		about := m.blinds == ofAll || m.blinds == ofNode && (node == "" || m.node == node)
		if end := m.end.Add(m.settles); about && !at.Before(m.start) && at.Before(end) && end.After(until) {
			until = end
		}
	}
	return until
}

// due returns a time plus a bound, or a later time if reports are blind then.
func (t timeline) due(node string, from time.Time, bound time.Duration) time.Time {
	at := from.Add(bound)
	for until := t.blind(node, at); !until.IsZero(); until = t.blind(node, at) {
		at = until
	}
	return at
}

// settle sets the end of each move's excuse. All moves must have ended.
func (t timeline) settle() {
	for _, m := range t {
		m.until = t.due(m.node, m.end, endedAfter)
	}
}

// unhealthy reports whether a node's plugin may be reported as unhealthy at a time.
func (t timeline) unhealthy(node string, at time.Time) bool {
	return slices.ContainsFunc(t, func(m *move) bool {
		return m.plugin && m.node == node && !at.Before(m.start) && at.Before(m.until)
	})
}

// linesOf returns the lines of a message about a node; node empty: the lines that name no node.
func linesOf(message, node string) (found []string) {
	for line := range strings.Lines(message) {
		ofNone := !strings.Contains(line, "node-") && !apiservers.Delivered.MatchString(line)
		if node != "" && strings.Contains(line, node) || node == "" && ofNone {
			found = append(found, line)
		}
	}
	return found
}
