package delivery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Reason of a delivery's status: one of contract.RollupReasons.
type Reason string

// NeedsAction reports whether an administrator must act.
func (r Reason) NeedsAction() bool {
	return r != "" && contract.RollupReasonOf(string(r)).NeedsAction
}

// Status of a delivery, or a problem that keeps it from being complete. A zero Status is not known yet.
type Status struct {
	Reason  Reason
	Message string
}

// Delivered reports whether nothing is left to be done.
func (s Status) Delivered() bool {
	return s.Reason == contract.AsExpected || s.Reason == contract.Unmanaged || s.Reason == contract.Off ||
		s.Reason == contract.Removed
}

// IfNeedsAction returns the status as a list, which is empty if no action is needed.
func (s Status) IfNeedsAction() []Status {
	if s.Reason.NeedsAction() {
		return []Status{s}
	}
	return nil
}

// MaxMessage bounds the message of a condition, in bytes.
const MaxMessage = 2048

// Worst returns one status for several problems, at least one: the most severe reason, and all messages, beginning
// with the message of that reason.
func Worst(problems []Status) Status {
	sorted := slices.Clone(problems)
	rank := func(s Status) int { return contract.Severity(string(s.Reason)) }
	slices.SortStableFunc(sorted, func(a, b Status) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.Message, b.Message))
	})
	sorted = slices.Compact(sorted)
	var messages []string
	for _, p := range sorted {
		text := p.Message
		if p.Reason != sorted[0].Reason { // the first one is the condition's reason
			text = fmt.Sprintf("%s: %s", p.Reason, p.Message)
		}
		messages = append(messages, text)
	}
	return Status{Reason: sorted[0].Reason, Message: Join(messages)}
}

// Join joins messages to one of at most MaxMessage bytes.
func Join(lines []string) string { return contract.Cut(strings.Join(lines, "; "), MaxMessage) }
