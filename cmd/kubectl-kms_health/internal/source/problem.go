package source

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Problem is why targets could not be read.
type Problem struct {
	// Unreachable means that the API server gave no usable answer; a retry may succeed.
	Unreachable bool

	class string // of problems with the same class, only one is printed
	text  string
}

func (p *Problem) Error() string { return p.text }

// Same reports whether two are the same problem, of two targets or repeated.
func (p *Problem) Same(other *Problem) bool { return p.class == other.class }

// SameAs reports whether an error is the same problem.
func (p *Problem) SameAs(err error) bool {
	var other *Problem
	return errors.As(err, &other) && p.Same(other)
}

const (
	forbidden    = "forbidden"
	unauthorized = "unauthorized"
	refused      = "refused"
	unreachable  = "unreachable"
)

func kindOf(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsUnauthorized(err):
		return unauthorized
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), apierrors.IsNotAcceptable(err):
		return refused
	default:
		return unreachable
	}
}

// explain returns a Problem with what failed, where, and what to do.
func (c *Cluster) explain(targets []string, verb string, err error) *Problem {
	p := &Problem{class: kindOf(err)}
	objects := strings.Join(targets, ", ") + " of " + contract.ResourceNamed(targets[0]).Group
	switch p.class {
	case forbidden:
		p.class += objects
		p.text = fmt.Sprintf("no right to %s %s: %v\nRequest the rights listed by kubectl kms-health --help", verb, objects, err)
	case unauthorized:
		p.text = fmt.Sprintf("%s rejected the credentials: %v\nLog in again, or use another kubeconfig or context", c, err)
	case refused:
		p.class += objects
		p.text = fmt.Sprintf("%s rejected the request to %s %s: %v", c, verb, objects, err)
	default:
		var timeout interface{ Timeout() bool }
		var wrapped *url.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			err = fmt.Errorf("no answer within %s", c.timeout)
		case errors.As(err, &wrapped): // less its URL, which is long
			err = wrapped.Err
		}
		p.Unreachable = true
		if apierrors.IsInternalError(err) {
			p.text = fmt.Sprintf("%s failed to %s %s: %v\nIt cannot read what a KMS plugin that fails has encrypted; its log has more", c, verb, objects, err)
			break
		}
		p.text = fmt.Sprintf("%s cannot be reached: %v\nCheck that it runs, and that it is the right one (--context); --from-file reads files instead", c, err)
	}
	return p
}
