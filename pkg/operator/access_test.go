package operator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// reviews simulates an API server that accepts the tokens "scraper" and "stranger", and allows only "scraper" to get
// /metrics.
type reviews struct{ err error }

type tokenReviews struct {
	authenticationclient.TokenReviewInterface
	*reviews
}

type accessReviews struct {
	authorizationclient.SubjectAccessReviewInterface
	*reviews
}

func (r *reviews) access() *access {
	return &access{tokens: tokenReviews{reviews: r}, accesses: accessReviews{reviews: r}}
}

func (r tokenReviews) Create(
	_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	review.Status.Authenticated = slices.Contains([]string{"scraper", "stranger"}, review.Spec.Token)
	review.Status.User = authenticationv1.UserInfo{
		Username: review.Spec.Token, UID: "uid", Groups: []string{"group"},
		Extra: map[string]authenticationv1.ExtraValue{"key": {"value"}},
	}
	return review, r.err
}

func (r accessReviews) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	s := review.Spec
	review.Status.Allowed = s.User == "scraper" && s.UID == "uid" && slices.Equal(s.Groups, []string{"group"}) &&
		slices.Equal(s.Extra["key"], []string{"value"}) &&
		s.ResourceAttributes == nil &&
		*s.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
	return review, r.err
}

// get returns the status code of a request.
func get(access *access, method, path, authorization string) int {
	request := httptest.NewRequest(method, path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response := httptest.NewRecorder()
	access.protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(response, request)
	return response.Code
}

func TestAPIServerDecidesWhoMayRead(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, authorization string
		err                         error
		want                        int
	}{
		"scraper":              {"GET", "/metrics", "Bearer scraper", nil, 200},
		"another path":         {"GET", "/", "Bearer scraper", nil, 403},
		"another method":       {"POST", "/metrics", "Bearer scraper", nil, 403},
		"stranger":             {"GET", "/metrics", "Bearer stranger", nil, 403},
		"no token":             {"GET", "/metrics", "", nil, 401},
		"empty token":          {"GET", "/metrics", "Bearer ", nil, 401},
		"unknown token":        {"GET", "/metrics", "Bearer x", nil, 401},
		"a password":           {"GET", "/metrics", "Basic scraper", nil, 401},
		"API server away":      {"GET", "/metrics", "Bearer scraper", errors.New("connection refused"), 503},
		"no token, it is away": {"GET", "/metrics", "", errors.New("connection refused"), 401},
	} {
		t.Run(name, func(t *testing.T) {
			api := &reviews{err: c.err}
			if got := get(api.access(), c.method, c.path, c.authorization); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
