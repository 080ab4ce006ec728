package informers

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Source is an Informer of any type.
type Source interface {
	HasSynced() bool
	Err() error
	Problem() error
	FailedFor() time.Duration
}

// AuthorizerWarmup is how long an API server that has just started may deny requests that it should allow: its
// authorizer has not read the roles yet.
const AuthorizerWarmup = 10 * time.Second

// Denied reports whether a request was denied. Retries do not help until a right is granted.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
