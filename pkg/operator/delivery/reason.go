package delivery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionType is the condition on an operator resource that reports how its
// target's reporters are delivered. No StatusSyncer aggregates it: it has none of their
// suffixes.
const ConditionType = "KMSHealthDelivery"

// Reason of a delivery's status.
type Reason string

// The reasons. What each means is in docs/operate/delivery.md.
const (
	TargetNamespaceMissing     Reason = "NamespaceMissing"
	OtherInstallation          Reason = "OtherInstallation"
	PolicyMissing              Reason = "PolicyMissing"
	Forbidden                  Reason = "Forbidden"
	Refused                    Reason = "Refused"
	RequestFailed              Reason = "RequestFailed"
	CredentialsExpired         Reason = "CredentialsExpired"
	RequestDenied              Reason = "RequestDenied"
	AwaitingApproval           Reason = "AwaitingApproval"
	RenewalFailed              Reason = "RenewalFailed"
	CAUnreadable               Reason = "CAUnreadable"
	SourceUnreadable           Reason = "SourceUnreadable"
	EncryptionConfigUnreadable Reason = "EncryptionConfigUnreadable"
	SocketVolumeMissing        Reason = "SocketVolumeMissing"
	DeploymentMissing          Reason = "DeploymentMissing"
	DeploymentPaused           Reason = "DeploymentPaused"
	InjectionReverted          Reason = "InjectionReverted"
	ImageNotProven             Reason = "ImageNotProven"
	ReporterNotRunning         Reason = "ReporterNotRunning"
	NoReporters                Reason = "NoReporters"
	ReportersNotWriting        Reason = "ReportersNotWriting"
	TLSProfileInvalid          Reason = "TLSProfileInvalid"

	AwaitingSources Reason = "AwaitingSources"
	AwaitingPods    Reason = "AwaitingPods"
	Progressing     Reason = "Progressing"
	Removing        Reason = "Removing"

	Configured         Reason = "Configured"
	SocketsOnHost      Reason = "SocketsOnHost"
	SocketsInPods      Reason = "SocketsInPods"
	ThirdPartyReporter Reason = "ThirdPartyReporter"
	Unmanaged          Reason = "Unmanaged"
	Off                Reason = "Off"
	Removed            Reason = "Removed"
)

// property is the severity and meaning of a reason.
type property struct {
	status   metav1.ConditionStatus
	severity string // the type of its Event
	// underWay marks a state that ends without intervention.
	underWay bool
	reasons  []Reason
}

// properties are those of all reasons, the most severe first: if several apply, the most severe one is
// reported.
var properties = []property{
	{metav1.ConditionFalse, corev1.EventTypeWarning, false, []Reason{
		OtherInstallation, Forbidden, Refused, RequestFailed, PolicyMissing, CredentialsExpired, CAUnreadable,
		SourceUnreadable, EncryptionConfigUnreadable, DeploymentMissing, SocketVolumeMissing, InjectionReverted,
		ImageNotProven, DeploymentPaused, ReporterNotRunning, NoReporters, ReportersNotWriting, RequestDenied,
		AwaitingApproval, RenewalFailed, TLSProfileInvalid,
	}},
	{metav1.ConditionUnknown, corev1.EventTypeNormal, true, []Reason{TargetNamespaceMissing, AwaitingSources}},
	{metav1.ConditionFalse, corev1.EventTypeNormal, true, []Reason{AwaitingPods, Removing, Progressing}},
	{metav1.ConditionTrue, corev1.EventTypeNormal, false, []Reason{
		Configured, SocketsOnHost, SocketsInPods, ThirdPartyReporter, Unmanaged, Off, Removed,
	}},
}

// find returns the properties of a reason, and its rank: the lower, the more severe.
func (r Reason) find() (p property, rank int) {
	for _, p := range properties {
		at := slices.Index(p.reasons, r)
		if at >= 0 {
			return p, rank + at
		}
		rank += len(p.reasons)
	}
	return property{status: metav1.ConditionFalse, severity: corev1.EventTypeWarning}, -1
}

func (r Reason) property() property { p, _ := r.find(); return p }

func (r Reason) rank() int { _, rank := r.find(); return rank }

// EventType is that of an Event with this reason.
func (r Reason) EventType() string { return r.property().severity }

// NeedsAction reports whether an administrator must act.
func (r Reason) NeedsAction() bool {
	return r != "" && r.property().severity == corev1.EventTypeWarning
}

// UnderWay reports whether a delivery with this reason is on its way.
func (r Reason) UnderWay() bool { return r.property().underWay }

// Problem is something that keeps a delivery from being complete.
type Problem struct {
	Reason  Reason
	Message string
}

// Status of a delivery. The zero Status is not known yet.
type Status struct {
	Reason  Reason
	Message string
}

// Condition is the status of the condition that reports it.
func (s Status) Condition() string { return string(s.Reason.property().status) }

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 2048

// worst is the status of several problems: the most severe reason, and all messages,
// its own first.
func worst(problems []Problem) Status {
	sorted := slices.Clone(problems)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return cmp.Or(a.Reason.rank()-b.Reason.rank(), strings.Compare(a.Message, b.Message))
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

func join(lines []string) string {
	text := strings.Join(lines, "; ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}
