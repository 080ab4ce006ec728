//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/test/e2e/fixture"
)

// written is a written object: the time of the request, and the KEK ID in etcd.
type written struct {
	requested time.Time
	kekID     string
}

// judgement compares what was written to the operator resource with what was done.
type judgement struct {
	moves    timeline
	states   []fixture.State // in their order
	writes   []written
	kekIDs   []string // in the order of the rotations
	nodes    []string
	problems []string

	named, followed, agreed int // counts of faults, of states that had to name one, and of writes while a key was agreed on
}

func (j *judgement) problem(format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf(format, args...))
}

func (j *judgement) String() string {
	counts := map[string]int{}
	for _, m := range j.moves {
		counts[m.name]++
	}
	return fmt.Sprintf("%d moves %v; %d faults had to be named, in %d of %d states; %d of %d writes while a key was "+
		"agreed on, %d keys", len(j.moves), counts, j.named, j.followed, len(j.states), j.agreed, len(j.writes),
		len(j.kekIDs))
}

// judge finds all problems.
func (j *judgement) judge() {
	j.moves.settle()
	for _, m := range j.moves {
		if m.fault != "" {
			j.fault(m)
		}
	}
	for _, node := range append([]string{""}, j.nodes...) {
		sighted := func(at time.Time) bool { return j.moves.blind(node, at).IsZero() }
		lines := func(c operatorstatus.Condition, unhealthy bool) []string {
			return slices.DeleteFunc(linesOf(c.Message, node), func(line string) bool { return silent(line) == unhealthy })
		}
		j.alarm(node, "KMSPluginsDegraded True", 0, func(s fixture.State) []string {
			if c := s.Conditions[contract.PluginsDegraded]; c.Status != operatorstatus.False && !j.moves.unhealthy(node, s.At) {
				return lines(c, true)
			}
			return nil
		})
		j.alarm(node, "KMSPluginsDegraded Unknown", inertia, func(s fixture.State) []string {
			if c := s.Conditions[contract.PluginsDegraded]; c.Status != operatorstatus.False && sighted(s.At) {
				return lines(c, false)
			}
			return nil
		})
		j.alarm(node, "KMSHealthReporting False", inertia, func(s fixture.State) []string {
			if c := s.Conditions[contract.HealthReporting]; c.Status == operatorstatus.False && sighted(s.At) {
				return linesOf(c.Message, node)
			}
			return nil
		})
	}
	j.agreement()
}

// silent reports whether a line of KMSPluginsDegraded is about a missing report, not about a plugin.
func silent(line string) bool {
	return !strings.Contains(line, ": error") && !strings.Contains(line, ": unhealthy") && strings.Contains(line, "report")
}

// names reports whether a state names the cause of a fault.
func (m *move) names(s fixture.State) bool {
	c, detail := s.Conditions[contract.PluginsDegraded], strings.ReplaceAll(m.detail, "%s", m.text)
	named := slices.ContainsFunc(linesOf(c.Message, m.node), func(line string) bool {
		return strings.Contains(line, detail)
	})
	if c.Status != operatorstatus.True || !named {
		return false
	}
	return detail != "" || slices.ContainsFunc(s.Reports[m.node], func(e contract.Entry) bool {
		return e.Reason == m.reason || e.Reason == contract.Unavailable
	})
}

// fault requires that a fault was named from its due time until its end, and not later.
func (j *judgement) fault(m *move) {
	due, seen := j.moves.due(m.node, m.start, m.namedAfter()), false
	for _, s := range j.states {
		switch {
		case s.At.After(due) && s.At.Before(m.end) && j.moves.blind(m.node, s.At).IsZero():
			seen = true
			j.followed++
			if c := s.Conditions[contract.PluginsDegraded]; !m.names(s) {
				j.problem("%s: at %s, due at %s, KMSPluginsDegraded is %s (%s): %s; reported: %+v", m, s.At.Format(time.TimeOnly),
					due.Format(time.TimeOnly), c.Status, c.Reason, c.Message, s.Reports[m.node])
				return
			}
		case s.At.After(m.until) && strings.Contains(s.Conditions[contract.PluginsDegraded].Message, m.text):
			j.problem("%s: at %s it is still named, which was to end at %s", m, s.At.Format(time.TimeOnly),
				m.until.Format(time.TimeOnly))
			return
		}
	}
	if seen {
		j.named++
	}
}

func (k *kind) namedAfter() time.Duration {
	if strings.Contains(k.fault, "crypt") {
		return tripAfter
	}
	return namedAfter
}

// alarm requires that no condition is bad without a cause for longer than most. bad returns the lines without a cause.
func (j *judgement) alarm(node, what string, most time.Duration, bad func(fixture.State) []string) {
	var since time.Time
	for _, s := range j.states {
		lines := bad(s)
		if len(lines) == 0 {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = s.At
		}
		if s.At.Sub(since) >= most {
			j.problem("%s about %q from %s to %s without a cause: %q", what, node, since.Format(time.TimeOnly),
				s.At.Format(time.TimeOnly), lines)
			return
		}
	}
}

// agreement requires that nothing is written under a former key while a later one is agreed on.
func (j *judgement) agreement() {
	for _, w := range j.writes {
		next := sort.Search(len(j.states), func(i int) bool { return j.states[i].At.After(w.requested) })
		if next == 0 {
			continue
		}
		var on struct{ KEKID string }
		c := j.states[next-1].Conditions[contract.WriteKeyAgreed]
		if c.Status != operatorstatus.True {
			continue
		}
		if err := json.Unmarshal([]byte(c.Message), &on); err != nil {
			j.problem("KMSWriteKeyAgreed: %q: %v", c.Message, err)
			return
		}
		j.agreed++
		by, agreed := slices.Index(j.kekIDs, w.kekID), slices.Index(j.kekIDs, on.KEKID)
		if by < agreed || by < 0 || agreed < 0 {
			j.problem("a write of %s is under %s, while %s was agreed on; keys: %v", w.requested.Format(time.TimeOnly),
				w.kekID, on.KEKID, j.kekIDs)
			return
		}
	}
}
