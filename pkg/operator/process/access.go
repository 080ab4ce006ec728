package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kms-health/kms-health/pkg/operator/retry"
)

const (
	// reviewed is how long the review of an allowed client counts. A scrape in that time
	// sends no request to the API server, and works while it is away.
	reviewed = time.Minute
	// rejected is how long an invalid token is not reviewed again.
	rejected = 10 * time.Second
	// reviewTimeout bounds both reviews of a request.
	reviewTimeout = 5 * time.Second
)

// access lets the API server decide who may send a request, by a TokenReview and a
// SubjectAccessReview.
//
// The delegating authorizer and authenticator of k8s.io/apiserver do the same. They
// link CEL, gRPC and OpenTelemetry, 9 MB of resident memory, and log a line for every
// request while the API server is away.
type access struct {
	tokens   authenticationclient.TokenReviewInterface
	accesses authorizationclient.SubjectAccessReviewInterface
	request  authenticator.Request
	allowed  *lru.LRUExpireCache // SubjectAccessReviewSpecs as JSON
	log      *retry.OutageLog
}

// newAccess returns an access that sends its reviews through these clients.
func newAccess(
	tokens authenticationclient.TokenReviewInterface, accesses authorizationclient.SubjectAccessReviewInterface,
) *access {
	a := &access{
		tokens: tokens, accesses: accesses,
		allowed: lru.NewLRUExpireCache(1024), log: retry.NewOutageLog("to review who reads /metrics"),
	}
	a.request = bearertoken.New(cache.New(authenticator.TokenFunc(a.authenticate), false, reviewed, rejected))
	return a
}

// errReview marks that a review had no outcome.
var errReview = errors.New("no outcome")

// observe logs whether reviews work.
func (a *access) observe(err error) error {
	a.log.Observe(err)
	if err != nil {
		return fmt.Errorf("%w: %w", errReview, err)
	}
	return nil
}

func (a *access) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := a.review(r); code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// review returns 200 for a request that may be served.
func (a *access) review(r *http.Request) int {
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	response, ok, err := a.request.AuthenticateRequest(r.WithContext(ctx))
	switch {
	case errors.Is(err, errReview):
		return http.StatusServiceUnavailable
	case err != nil || !ok: // a token that is not valid is an error to bearertoken
		return http.StatusUnauthorized
	}
	allowed, err := a.authorize(ctx, response.User, strings.ToLower(r.Method), r.URL.Path)
	switch {
	case err != nil:
		return http.StatusServiceUnavailable
	case !allowed:
		return http.StatusForbidden
	}
	return http.StatusOK
}

func (a *access) authenticate(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	question := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := a.tokens.Create(ctx, question, metav1.CreateOptions{})
	if err := a.observe(err); err != nil || !review.Status.Authenticated {
		return nil, false, err
	}
	who := review.Status.User
	info := &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: map[string][]string{}}
	for name, values := range who.Extra {
		info.Extra[name] = values
	}
	return &authenticator.Response{User: info}, true, nil
}

func (a *access) authorize(ctx context.Context, who user.Info, verb, path string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}
	for name, values := range who.GetExtra() {
		spec.Extra[name] = values
	}
	key, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	if _, found := a.allowed.Get(string(key)); found {
		return true, nil
	}
	review, err := a.accesses.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err := a.observe(err); err != nil || !review.Status.Allowed {
		return false, err
	}
	a.allowed.Add(string(key), nil, reviewed)
	return true, nil
}
