package source

import (
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Problem is why a target could not be read.
type Problem struct {
	// Unreachable says that the API server gave no answer to go by, and may yet.
	Unreachable bool

	class string // of those with the same, one is enough to be told
	text  string
}

func (p *Problem) Error() string { return p.text }

// Same says that two are the same problem, told of two targets or twice.
func (p *Problem) Same(other *Problem) bool { return p.class == other.class }

// explain says what is wrong, where, and what to do.
func (c *Cluster) explain(target, verb string, err error) *Problem {
	object := target + "." + group + "/" + objectName
	switch {
	case apierrors.IsForbidden(err):
		return &Problem{class: target, text: fmt.Sprintf("%s: no right to %s it: %v\nAsk for the rights that kubectl kms-health --help names", object, verb, err)}
	case apierrors.IsUnauthorized(err):
		return &Problem{class: "unauthorized", text: fmt.Sprintf("%s does not know you: %v\nLog in again, or name another kubeconfig or context", c, err)}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), apierrors.IsNotAcceptable(err):
		return &Problem{class: target, text: fmt.Sprintf("%s: cannot %s it: %v", object, verb, err)}
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) { // less its URL, which is long
		err = wrapped.Err
	}
	return &Problem{
		Unreachable: true,
		class:       "unreachable",
		text:        fmt.Sprintf("%s cannot be reached: %v", c, err),
	}
}
