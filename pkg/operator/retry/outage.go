package retry

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// OutageLog logs that requests of one kind to the API server fail: one line when they begin to
// fail, or fail for another reason, and one line when they succeed again. Its methods may be
// called concurrently.
type OutageLog struct {
	requests string

	mu     sync.Mutex
	reason string // why the last request failed, empty when it succeeded
}

// NewOutageLog returns an OutageLog that names its requests so.
func NewOutageLog(requests string) *OutageLog { return &OutageLog{requests: requests} }

// Observe takes the outcome of one request. An answer that depends on the object alone
// (not found, conflict, already exists) is a success. A request that its caller
// cancelled has no outcome.
func (l *OutageLog) Observe(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	reason := reasonOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == l.reason {
		return
	}
	l.reason = reason
	if reason == "" {
		klog.InfoS("Requests to the API server succeed again", "requests", l.requests)
		return
	}
	klog.ErrorS(err, "Requests to the API server fail", "requests", l.requests)
}

func reasonOf(err error) string {
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ""
	case Away(err):
		return "away" // the texts of network errors differ from one to the next
	}
	return string(apierrors.ReasonForError(err))
}

// Away reports whether the API server could not be reached, or answered that it is
// starting, ending or overloaded. A request that it refused is not waited for.
func Away(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return err != nil
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonServiceUnavailable, metav1.StatusReasonInternalError, metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTooManyRequests:
		return true
	}
	return false
}
