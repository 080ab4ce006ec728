package view

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Change is an Event of the operator on a changed condition.
type Change struct {
	Time      metav1.Time `json:"time"` // when it was last seen
	APIServer string      `json:"apiServer"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message"` // it begins with the condition's type and status
	Count     int32       `json:"count,omitempty"`
}

const maxHistory = 10 // how many changes a Status has

// history are the last changes of the conditions of API servers, the oldest first.
func (e *evaluation) history() (all []Change) {
	for _, event := range decoded[corev1.Event](e.snapshot, "Event") {
		server, message, _ := strings.Cut(event.Message, ": ")
		condition, _, _ := strings.Cut(message, " ")
		shown := slices.ContainsFunc(e.APIServers, func(a APIServer) bool { return a.Name == server })
		if shown && event.Source.Component == contract.OperatorName && slices.Contains(rollup.Types, condition) {
			all = append(all, Change{event.LastTimestamp, server, event.Reason, message, event.Count})
		}
	}
	slices.SortStableFunc(all, func(a, b Change) int { return a.Time.Compare(b.Time.Time) })
	return all[max(0, len(all)-maxHistory):]
}
