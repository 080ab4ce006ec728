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
// target's reporters are delivered. No StatusSyncer takes it up: its suffix is none
// of theirs.
const ConditionType = "KMSHealthDelivery"

// Reason of a delivery's status.
type Reason string

// The reasons. What each means is in docs/operator.md.
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

// property is what a reason means for those who see it.
type property struct {
	reason   Reason
	status   metav1.ConditionStatus
	severity string // the type of its Event
	// underWay marks what ends without anybody's help.
	underWay bool
}

// reasons are all there are, the most severe first: of several, that one is reported.
var reasons = []property{
	{OtherInstallation, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{Forbidden, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{Refused, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{RequestFailed, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{PolicyMissing, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{CredentialsExpired, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{CAUnreadable, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{SourceUnreadable, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{EncryptionConfigUnreadable, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{DeploymentMissing, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{SocketVolumeMissing, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{InjectionReverted, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{ImageNotProven, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{DeploymentPaused, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{ReporterNotRunning, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{NoReporters, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{ReportersNotWriting, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{RequestDenied, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{AwaitingApproval, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{RenewalFailed, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{TLSProfileInvalid, metav1.ConditionFalse, corev1.EventTypeWarning, false},
	{TargetNamespaceMissing, metav1.ConditionUnknown, corev1.EventTypeNormal, true},

	{AwaitingSources, metav1.ConditionUnknown, corev1.EventTypeNormal, true},
	{AwaitingPods, metav1.ConditionFalse, corev1.EventTypeNormal, true},
	{Removing, metav1.ConditionFalse, corev1.EventTypeNormal, true},
	{Progressing, metav1.ConditionFalse, corev1.EventTypeNormal, true},

	{Configured, metav1.ConditionTrue, corev1.EventTypeNormal, false},
	{SocketsOnHost, metav1.ConditionTrue, corev1.EventTypeNormal, false},
	{SocketsInPods, metav1.ConditionTrue, corev1.EventTypeNormal, false},
	{ThirdPartyReporter, metav1.ConditionTrue, corev1.EventTypeNormal, false},
	{Unmanaged, metav1.ConditionTrue, corev1.EventTypeNormal, false},
	{Off, metav1.ConditionTrue, corev1.EventTypeNormal, false},
	{Removed, metav1.ConditionTrue, corev1.EventTypeNormal, false},
}

func (r Reason) rank() int {
	return slices.IndexFunc(reasons, func(p property) bool { return p.reason == r })
}

func (r Reason) property() property {
	if at := r.rank(); at >= 0 {
		return reasons[at]
	}
	return property{reason: r, status: metav1.ConditionFalse, severity: corev1.EventTypeWarning}
}

// EventType is that of an Event with this reason.
func (r Reason) EventType() string { return r.property().severity }

// Trouble reports whether somebody must act.
func (r Reason) Trouble() bool { return r != "" && r.property().severity == corev1.EventTypeWarning }

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
		if p.Reason != sorted[0].Reason { // the first one stands beside the message
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
