package reportercontroller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

var day0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func days(n float64) time.Duration { return time.Duration(n * float64(24*time.Hour)) }

func tokenSecret(change func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			contract.IssuedAtAnnotation:  "2026-01-01T00:00:00Z",
			contract.ExpiresAtAnnotation: "2026-01-31T00:00:00Z",
		}, OwnerReferences: []metav1.OwnerReference{{UID: "account"}}},
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("secret")},
	}
	if change != nil {
		change(secret)
	}
	return secret
}

func TestTokenIsRenewedAtHalfItsLifeOrWhenItIsInvalid(t *testing.T) {
	valid := tokenSecret(nil)
	annotate := func(name, value string) *corev1.Secret {
		return tokenSecret(func(s *corev1.Secret) { s.Annotations[name] = value })
	}
	for name, c := range map[string]struct {
		secret     *corev1.Secret
		at         time.Duration
		uid        types.UID
		due, works bool
	}{
		"new":                    {valid, 0, "account", false, true},
		"before half its life":   {valid, days(15) - time.Second, "account", false, true},
		"at half its life":       {valid, days(15), "account", true, true},
		"after its end":          {valid, days(30), "account", true, false},
		"a clock that went back": {valid, -days(400), "account", false, true},
		"another account":        {valid, 0, "another", true, false},
		"of ten minutes":         {annotate(contract.ExpiresAtAnnotation, "2026-01-01T00:10:00Z"), 5 * time.Minute, "account", true, true},
		"no Secret":              {&corev1.Secret{}, 0, "account", true, false},
		"no token":               {tokenSecret(func(s *corev1.Secret) { s.Data = nil }), 0, "account", true, false},
		"an empty token": {tokenSecret(func(s *corev1.Secret) { s.Data[corev1.ServiceAccountTokenKey] = nil }), 0, "account", true,
			false},
		"no owner":           {tokenSecret(func(s *corev1.Secret) { s.OwnerReferences = nil }), 0, "account", true, false},
		"no annotations":     {tokenSecret(func(s *corev1.Secret) { s.Annotations = nil }), 0, "account", true, false},
		"no end":             {annotate(contract.ExpiresAtAnnotation, ""), 0, "account", true, false},
		"no beginning":       {annotate(contract.IssuedAtAnnotation, "yesterday"), 0, "account", true, false},
		"an end before that": {annotate(contract.ExpiresAtAnnotation, "2025-01-01T00:00:00Z"), 0, "account", true, false},
	} {
		v, now := tokenValidity(c.secret, c.uid), day0.Add(c.at)
		if due, works := !now.Before(v.renewAt), now.Before(v.notAfter); due != c.due || works != c.works {
			t.Errorf("%s: due %t, works %t, want %t, %t", name, due, works, c.due, c.works)
		}
	}
}

// tokenFixture is a Controller whose time the test sets, and a fake API with a ServiceAccount.
type tokenFixture struct {
	client     *fake.Clientset
	now        time.Time
	controller *Controller
}

func newTokenFixture(objects ...runtime.Object) *tokenFixture {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: contract.ReporterName("api"),
		UID: "account"}}
	f := &tokenFixture{client: fake.NewClientset(append(objects, account)...)}
	f.controller = &Controller{Options: Options{Core: f.client.CoreV1(), Now: func() time.Time { return f.now }}}
	return f
}

func (f *tokenFixture) at(t *testing.T, after time.Duration) (validity, error) {
	t.Helper()
	f.now = day0.Add(after)
	return f.controller.ensureToken(t.Context(), "ns", "api")
}

// respond sets the response to every request of a verb and a resource.
func (f *tokenFixture) respond(verb, resource string, o runtime.Object, err error) {
	f.client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, o, err
	})
}

func TestErrorOfARenewalIsReportedWithItsCause(t *testing.T) {
	unreadable := apierrors.NewInternalError(errors.New("kms: unable to decrypt"))
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "sa")
	all := halved(day0, day0.Add(days(30)))
	for name, c := range map[string]struct {
		verb, resource string
		err            error
		want           validity
	}{
		"no right to request a token":    {"create", "serviceaccounts", noRight("x"), all},
		"the account cannot be read":     {"get", "serviceaccounts", noRight("x"), validity{}},
		"the account was deleted":        {"get", "serviceaccounts", gone, validity{}},
		"the Secret cannot be decrypted": {"get", "secrets", unreadable, validity{}},
		"the Secret cannot be written":   {"patch", "secrets", unreadable, all},
	} {
		f := newTokenFixture(tokenSecret(func(s *corev1.Secret) { s.Namespace, s.Name = "ns", objects.TokenName("api") }))
		f.respond("create", "serviceaccounts", &authenticationv1.TokenRequest{}, nil)
		f.respond(c.verb, c.resource, nil, c.err)
		v, err := f.at(t, days(15))
		dated := strings.Contains(fmt.Sprint(err), "expires at 2026-01-31T00:00:00Z")
		if v != c.want || !errors.Is(err, c.err) || dated != (c.want == all) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

// The lifetime in the answer counts, from the operator's own clock. The expiry time is by another clock.
func TestServerDecidesTheLifetimeOfAToken(t *testing.T) {
	f := newTokenFixture()
	f.respond("create", "serviceaccounts", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))},
		Status: authenticationv1.TokenRequestStatus{
			Token: "secret", ExpirationTimestamp: metav1.NewTime(day0.Add(time.Hour)),
		},
	}, nil)
	v, err := f.at(t, days(100))
	for _, a := range f.client.Actions() {
		if create, is := a.(clienttesting.CreateAction); is && a.GetSubresource() == "token" {
			if asked := create.GetObject().(*authenticationv1.TokenRequest).Spec.ExpirationSeconds; *asked != 30*24*60*60 {
				t.Errorf("a token of %d s was requested", *asked)
			}
		}
	}
	if want := f.now.Add(10 * time.Minute); err != nil || !v.notAfter.Equal(want) {
		t.Errorf("not after %s, want %s; %v", v.notAfter, want, err)
	}
}

func TestTokenIsMadeOnceItIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		forbidden, before bool // recording is forbidden; a pod mounts a token already
		want              bool
	}{
		"recorded":                    {false, false, true},
		"it cannot be recorded":       {true, false, false},
		"one is mounted from earlier": {true, true, true},
	} {
		f := newTokenFixture()
		f.respond("create", "serviceaccounts", &authenticationv1.TokenRequest{}, nil)
		client, role := newClient(), object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "api")
		client.PrependReactor("patch", "clusterroles", patched())
		if c.forbidden {
			failPatch(client, "clusterroles", noRight("clusterroles"))
		}
		e, s := executor(client), anyServer()
		if e.Core = f.client.CoreV1(); c.before {
			s.Pods = []*corev1.Pod{apiPod("a", "1", withToken)}
		}
		_ = e.reconcile(t.Context(), s, &Plan{Anchor: role, Token: true, State: delivery.State{Namespace: "ns"}})
		asked := slices.ContainsFunc(f.client.Actions(), func(a clienttesting.Action) bool { return a.GetSubresource() == "token" })
		if asked != c.want {
			t.Errorf("%s: requested %t", name, asked)
		}
	}
}
