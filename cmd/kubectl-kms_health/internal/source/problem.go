package source

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Problem is why targets could not be read.
type Problem struct {
	// Unreachable means that the API server gave no answer to go by, and may yet.
	Unreachable bool

	class string // of those with the same, one is enough to be told
	text  string
}

func (p *Problem) Error() string { return p.text }

// Same means that two are the same problem, told of two targets or twice.
func (p *Problem) Same(other *Problem) bool { return p.class == other.class }

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

// explain says what is wrong, where, and what to do.
func (c *Cluster) explain(targets []string, verb string, err error) *Problem {
	p := &Problem{class: kindOf(err)}
	objects := strings.Join(targets, ", ") + " of " + operatorcr.Group
	switch p.class {
	case forbidden:
		p.class += objects
		p.text = fmt.Sprintf("no right to %s %s: %v\nAsk for the rights that kubectl kms-health --help names", verb, objects, err)
	case unauthorized:
		p.text = fmt.Sprintf("%s does not know you: %v\nLog in again, or name another kubeconfig or context", c, err)
	case refused:
		p.class += objects
		p.text = fmt.Sprintf("%s does not let you %s %s: %v", c, verb, objects, err)
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
		p.text = fmt.Sprintf("%s cannot be reached: %v\nIs it up, and is it the right one? See --context; files are read by --from-file", c, err)
	}
	return p
}
