package operator

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kms-health/kms-health/pkg/serving"
)

const (
	reviewed      = time.Minute      // for how long the review of an allowed client counts, also during an outage
	rejected      = 10 * time.Second // for how long another outcome counts
	reviewTimeout = 5 * time.Second  // of both reviews of a request
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
	codes    *cache.LRUExpireCache // of reviewed questions
	problem  serving.Problem       // of the reviews
}

func newAccess(tokens authenticationclient.TokenReviewInterface,
	accesses authorizationclient.SubjectAccessReviewInterface) *access {
	return &access{tokens: tokens, accesses: accesses, codes: cache.NewLRUExpireCache(1024)}
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
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return http.StatusUnauthorized
	}
	question := sha256.Sum256([]byte(token + "\n" + r.Method + "\n" + r.URL.Path)) // no token stays in memory
	if code, found := a.codes.Get(question); found {
		return code.(int)
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	code, err := a.ask(ctx, token, r)
	a.problem.Note(err, "Failed to review who reads /metrics")
	if err != nil {
		return http.StatusServiceUnavailable
	}
	lasts := rejected
	if code == http.StatusOK {
		lasts = reviewed
	}
	a.codes.Add(question, code, lasts)
	return code
}

// ask sends the reviews; an error is that one has no outcome.
func (a *access) ask(ctx context.Context, token string, r *http.Request) (code int, err error) {
	whose := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	owner, err := a.tokens.Create(ctx, whose, metav1.CreateOptions{})
	if err != nil || !owner.Status.Authenticated {
		return http.StatusUnauthorized, err
	}
	who := owner.Status.User
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
	}
	for name, values := range who.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	may, err := a.accesses.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil || !may.Status.Allowed {
		return http.StatusForbidden, err
	}
	return http.StatusOK, nil
}
