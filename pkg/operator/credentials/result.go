package credentials

import (
	"fmt"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Result is the state of a token. Where its Secret cannot be read, it is the state by the
// dates that were read last.
type Result struct {
	// NotAfter is when the token expires, and RenewAt when it is renewed: at half its life.
	// Zero: there is none, or it was not readable yet.
	NotAfter, RenewAt time.Time
	// Next is when to call Ensure again at the latest.
	Next time.Time
	// Problem is why there is no token, or why the renewal that is due does not go on. Nil:
	// there is nothing to report.
	Problem *Problem
}

// Problem is why a token is not renewed: contract.RenewalFailed, or CredentialsExpired after
// its end, with a message for people. It is an error as well, so that apierrors.IsForbidden
// finds what caused it.
type Problem struct {
	Reason  string
	Message string

	cause error
}

func (p *Problem) Error() string { return p.Message }
func (p *Problem) Unwrap() error { return p.cause }

// validity is what is known of the token in a Secret. The zero value means that none works.
type validity struct{ notAfter, renewAt time.Time }

// lasting returns the validity of a token that is renewed at half its life.
func lasting(notBefore, notAfter time.Time) validity {
	return validity{notAfter: notAfter, renewAt: notBefore.Add(notAfter.Sub(notBefore) / 2)}
}

func (v validity) works(now time.Time) bool { return now.Before(v.notAfter) }
func (v validity) due(now time.Time) bool   { return !now.Before(v.renewAt) }

const (
	// checkInterval is how often a token that works is checked: Secrets are not watched, so
	// one that was deleted or emptied is found by reading it.
	checkInterval = 10 * time.Minute
	// soon is the delay after an error without a token that works, later with one.
	soon, later = 5 * time.Second, 30 * time.Second
)

// result is the Result for a validity, and why the token is not renewed; nil: it need not be.
func (v validity) result(want Request, err error, now time.Time) Result {
	r := Result{NotAfter: v.notAfter, RenewAt: v.renewAt, Next: now.Add(checkInterval)}
	if err == nil {
		if v.renewAt.Before(r.Next) {
			r.Next = v.renewAt
		}
		return r
	}
	r.Next = now.Add(soon)
	r.Problem = &Problem{Reason: contract.RenewalFailed, Message: err.Error(), cause: err}
	if v == (validity{}) {
		return r
	}
	verb := "expires"
	if v.works(now) {
		r.Next = now.Add(later)
	} else {
		verb, r.Problem.Reason = "expired", contract.CredentialsExpired
	}
	r.Problem.Message += fmt.Sprintf("; the token in Secret %s %s at %s", want.key(), verb, v.notAfter.UTC().Format(time.RFC3339))
	return r
}
