package operator

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationfake "k8s.io/client-go/kubernetes/typed/authentication/v1/fake"
	authorizationfake "k8s.io/client-go/kubernetes/typed/authorization/v1/fake"
	clienttesting "k8s.io/client-go/testing"
)

// reviews is an API server that accepts the tokens "scraper" and "stranger", and allows only "scraper" to get /metrics.
func reviews(problem error) *access {
	api := &clienttesting.Fake{}
	api.AddReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.CreateAction).GetObject()
		switch review := o.(type) {
		case *authenticationv1.TokenReview:
			review.Status.Authenticated = slices.Contains([]string{"scraper", "stranger"}, review.Spec.Token)
			review.Status.User = authenticationv1.UserInfo{
				Username: review.Spec.Token, UID: "uid", Groups: []string{"group"},
				Extra: map[string]authenticationv1.ExtraValue{"key": {"value"}},
			}
		case *authorizationv1.SubjectAccessReview:
			s := review.Spec
			review.Status.Allowed = s.User == "scraper" && s.UID == "uid" && slices.Equal(s.Groups, []string{"group"}) &&
				slices.Equal(s.Extra["key"], []string{"value"}) && s.ResourceAttributes == nil &&
				*s.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
		}
		return true, o, problem
	})
	return &access{
		tokens:   (&authenticationfake.FakeAuthenticationV1{Fake: api}).TokenReviews(),
		accesses: (&authorizationfake.FakeAuthorizationV1{Fake: api}).SubjectAccessReviews(),
	}
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
			request := httptest.NewRequest(c.method, c.path, nil)
			request.Header.Set("Authorization", c.authorization)
			response := httptest.NewRecorder()
			reviews(c.err).protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(response, request)
			if response.Code != c.want {
				t.Errorf("%d, want %d", response.Code, c.want)
			}
		})
	}
}
