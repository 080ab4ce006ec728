package main

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// reviewed is how long a review that let a scraper in counts. A scrape in that
// time asks the API server nothing, and works while it is away.
const reviewed = time.Minute

// onlyAllowed lets those get a path whom the API server knows by their token, and
// allows to (RBAC's nonResourceURLs). controller-runtime's filter does the same by
// way of k8s.io/apiserver, which makes the program 10 MB larger in memory.
func onlyAllowed(config *rest.Config, _ *http.Client) (metricsserver.Filter, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	g := &guard{client: client, allowed: map[[sha256.Size]byte]time.Time{}}
	return func(_ logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if code := g.review(r); code != http.StatusOK {
				http.Error(w, http.StatusText(code), code)
				return
			}
			next.ServeHTTP(w, r)
		}), nil
	}, nil
}

type guard struct {
	client kubernetes.Interface

	mu      sync.Mutex
	allowed map[[sha256.Size]byte]time.Time // until when, by token, method and path
}

// review is 200 where the request may be served.
func (g *guard) review(r *http.Request) int {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return http.StatusUnauthorized
	}
	verb := strings.ToLower(r.Method)
	key := sha256.Sum256([]byte(verb + "\x00" + r.URL.Path + "\x00" + token))
	now := time.Now()
	g.mu.Lock()
	until := g.allowed[key]
	g.mu.Unlock()
	if now.Before(until) {
		return http.StatusOK
	}
	who, err := g.client.AuthenticationV1().TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		klog.V(1).InfoS("A scraper's token could not be reviewed", "err", err)
		return http.StatusServiceUnavailable
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range who.Status.User.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	may, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Status.User.Username, Groups: who.Status.User.Groups, UID: who.Status.User.UID, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: verb},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		klog.V(1).InfoS("A scraper's rights could not be reviewed", "err", err)
		return http.StatusServiceUnavailable
	}
	if !may.Status.Allowed {
		return http.StatusForbidden
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, until := range g.allowed { // few scrapers, so few entries
		if now.After(until) {
			delete(g.allowed, k)
		}
	}
	g.allowed[key] = now.Add(reviewed)
	return http.StatusOK
}
