package operator

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kms-health/kms-health/pkg/serving"
)

// access lets the API server decide who may send a request, by a TokenReview and a SubjectAccessReview for each. The
// delegating authorizer and authenticator of k8s.io/apiserver do the same. They link CEL, gRPC and OpenTelemetry, 9 MB
// of resident memory, and log a line for every request while the API server is away.
type access struct {
	tokens   authenticationclient.TokenReviewInterface
	accesses authorizationclient.SubjectAccessReviewInterface
	problem  serving.Problem // of the reviews
}

func (a *access) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		code := http.StatusUnauthorized
		if token = strings.TrimSpace(token); token != "" && strings.EqualFold(scheme, "Bearer") {
			var err error
			code, err = a.review(token, r)
			if a.problem.Note(err, "Failed to review who reads /metrics"); err != nil {
				code = http.StatusServiceUnavailable
			}
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// review returns 200, 401 or 403. An error means that a review had no outcome.
func (a *access) review(token string, r *http.Request) (code int, err error) {
	ctx := r.Context()
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
