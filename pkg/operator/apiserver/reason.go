package apiserver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Reason of a delivery's status: one of contract.RollupReasons.
type Reason string

// NeedsAction reports whether an administrator must act.
func (r Reason) NeedsAction() bool {
	return r != "" && contract.RollupReasonOf(string(r)).NeedsAction
}

// EventType is that of an Event with this reason.
func (r Reason) EventType() string {
	if r.NeedsAction() {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// Status of a delivery, or a problem that keeps it from being complete. The zero Status is not
// known yet.
type Status struct {
	Reason  Reason
	Message string
}

// Delivered reports whether nothing is left to be done.
func (s Status) Delivered() bool {
	return s.Reason == contract.AsExpected || s.Reason == contract.Unmanaged || s.Reason == contract.Off ||
		s.Reason == contract.Removed
}

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 2048

// worst is the status of several problems: the most severe reason, and all messages,
// its own first.
func worst(problems []Status) Status {
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
	return Status{sorted[0].Reason, join(messages)}
}

func join(lines []string) string { return contract.Cut(strings.Join(lines, "; "), maxMessage) }
