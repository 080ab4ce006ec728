package credentials

import (
	"errors"
	"fmt"
	"time"
)

// Result is the state of a credential.
type Result struct {
	// Ready is true while the Secret holds a credential that works, also one whose
	// renewal is due. If the Secret cannot be read, it is the state according to the
	// dates that were read last.
	Ready bool
	// NotAfter is when the credential expires. Zero: it does not (LegacyToken), there
	// is none, or it was not readable yet.
	NotAfter time.Time
	// RenewAt is when it is renewed: at half its life. Zero as NotAfter.
	RenewAt time.Time
	// Next is when to call Ensure again at the latest.
	Next time.Time
	// Problem is why there is no credential, or why the renewal that is due does not
	// go on. Nil where there is nothing to report; a renewal that only takes its few
	// seconds beside a credential that works is nothing to report.
	Problem *Problem
}

// Reason is why a credential is not in the desired state, as one word for conditions,
// events and metrics.
type Reason string

// Reasons of a Problem.
const (
	// ReasonProgressing: there is no credential yet, and another controller is about
	// to do its part. After progressDeadline it is ReasonRenewalFailed.
	ReasonProgressing Reason = "Progressing"
	// ReasonAwaitingApproval: an administrator must act; the message has the command.
	ReasonAwaitingApproval Reason = "AwaitingApproval"
	// ReasonRequestDenied: the request for a certificate was denied. Another is made
	// after refusedFor.
	ReasonRequestDenied Reason = "RequestDenied"
	// ReasonRenewalFailed: an error, which the message contains.
	ReasonRenewalFailed Reason = "RenewalFailed"
	// ReasonCredentialsExpired: the credential has expired and is not renewed yet;
	// the message has the reason for that.
	ReasonCredentialsExpired Reason = "CredentialsExpired"
)

// Problem is a Reason with its message for people. It is an error as well, so that
// errors.As and apierrors.IsForbidden find what caused it.
type Problem struct {
	Reason  Reason
	Message string

	cause error
	after time.Duration // when to call again; zero: see retryAfter
}

func (p *Problem) Error() string { return p.Message }
func (p *Problem) Unwrap() error { return p.cause }

// validity is the known state of the credential in a Secret. The zero value means that
// none works.
type validity struct {
	usable            bool
	notAfter, renewAt time.Time // both zero where it does not expire
}

// lasting returns the validity of a credential that is renewed at half its life.
func lasting(notBefore, notAfter time.Time) validity {
	return validity{usable: true, notAfter: notAfter, renewAt: notBefore.Add(notAfter.Sub(notBefore) / 2)}
}

func (v validity) works(now time.Time) bool {
	return v.usable && (v.notAfter.IsZero() || now.Before(v.notAfter))
}

func (v validity) due(now time.Time) bool {
	return !v.usable || !v.renewAt.IsZero() && !now.Before(v.renewAt)
}

const (
	// checkInterval is how often a credential that works is checked: Secrets are not
	// watched, so one that was deleted or emptied is found by reading it.
	checkInterval = 10 * time.Minute
	// soon is the requeue delay while another controller has to act, and after an error
	// without a credential that works; later is the delay with one.
	soon, later = 5 * time.Second, 30 * time.Second
	// progressDeadline is how long another controller may take for its part.
	progressDeadline = 5 * time.Minute
)

// result makes the Result of a step: v is the state of the Secret, and err, which may be
// a *Problem, is why it is not the desired one.
func (s *state) result(want Request, v validity, err error, now time.Time) Result {
	r := Result{Ready: v.works(now), NotAfter: v.notAfter, RenewAt: v.renewAt, Next: now.Add(checkInterval)}
	if err == nil {
		s.waitingSince = time.Time{}
		if !v.renewAt.IsZero() && v.renewAt.Before(r.Next) {
			r.Next = v.renewAt
		}
		return r
	}
	p := &Problem{Reason: ReasonRenewalFailed, Message: err.Error(), cause: err}
	if given, ok := errors.AsType[*Problem](err); ok {
		*p = *given
	}
	switch {
	case p.after > 0:
		r.Next = now.Add(p.after)
	case r.Ready:
		r.Next = now.Add(later)
	default:
		r.Next = now.Add(soon)
	}
	if p.Reason != ReasonProgressing {
		s.waitingSince = time.Time{}
	} else {
		if s.waitingSince.IsZero() {
			s.waitingSince = now
		}
		if waited := now.Sub(s.waitingSince); waited >= progressDeadline {
			p.Reason, p.Message = ReasonRenewalFailed, fmt.Sprintf("%s, for %s now", p.Message, waited.Round(time.Minute))
		} else if r.Ready {
			return r
		}
	}
	if v.usable && !v.notAfter.IsZero() {
		verb := "expires"
		if !r.Ready {
			verb, p.Reason = "expired", ReasonCredentialsExpired
		}
		p.Message += fmt.Sprintf("; the credential in Secret %s %s at %s", want.key(), verb, v.notAfter.UTC().Format(time.RFC3339))
	}
	r.Problem = p
	return r
}
