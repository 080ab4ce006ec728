package informers

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Source is an Informer of any type.
type Source interface {
	HasSynced() bool
	Err() error
	FailedFor() time.Duration
}

// AuthorizerWarmup is for how long an API server that has just started may deny requests that it
// will allow: its authorizer has not read the roles yet.
const AuthorizerWarmup = 10 * time.Second

// Denied reports whether a request was denied, which lasts until a right is given.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
