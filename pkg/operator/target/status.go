package target

import (
	"fmt"
	"slices"
	"strings"
)

// ConditionType is the operator's word on how a target's reporters get where they
// are needed. No StatusSyncer takes it up: its suffix is none of theirs.
const ConditionType = "KMSHealthDelivery"

const (
	// ReasonProgressing says that something is waited for.
	ReasonProgressing = "Progressing"
	// ReasonRemoving says that something is taken back.
	ReasonRemoving = "Removing"
	// ReasonAwaitingSources says that too little is known to change anything. With
	// an empty message it is only a matter of a moment.
	ReasonAwaitingSources = "AwaitingSources"
)

// status tells how a delivery stands. Problems come before what is waited for.
func (p *planner) status(choice Choice) Status {
	if len(p.problems) > 0 {
		slices.Sort(p.problems)
		p.problems = slices.Compact(p.problems)
		reason, _, _ := strings.Cut(p.problems[0], ": ")
		for i, problem := range p.problems { // the reason is told beside the message
			p.problems[i] = strings.TrimPrefix(problem, reason+": ")
		}
		return Status{"False", reason, join(p.problems)}
	}
	if p.pendings {
		return Status{"Unknown", ReasonAwaitingSources, ""} // told in a moment
	}
	if len(p.waits) > 0 {
		return Status{"False", ReasonProgressing, join(p.waits)}
	}
	message := choice.Message
	if choice.Delivery.InOwnersPods() && p.plan.Credentials != nil {
		message += fmt.Sprintf("; credentials in Secret %s/%s", p.plan.Credentials.Namespace, p.plan.Credentials.Name)
	}
	if p.Encryption != nil && len(p.Encryption.Live.Ignored) > 0 {
		message += "; not probed: " + p.Encryption.Live.IgnoredText(1)
	}
	return Status{"True", choice.Reason, message}
}

// maxMessage bounds what goes into a condition.
const maxMessage = 2048

func join(lines []string) string {
	text := strings.Join(lines, "; ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}
