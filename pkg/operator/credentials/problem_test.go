package credentials

import (
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

// fixture is a Manager at a clock that the test sets.
type fixture struct {
	t       *testing.T
	client  *fake.Clientset
	clock   *testclock.FakePassiveClock
	manager *Manager
	want    Request
}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, client: fake.NewClientset(objects...), clock: testclock.NewFakePassiveClock(day0),
		want: Request{Namespace: "ns", Secret: "s", ServiceAccount: "sa"}}
	f.manager = New(f.client, f.clock.Now)
	return f
}

// tokenFixture has a token that is valid from day0 for 30 days, and its account.
func tokenFixture(t *testing.T) *fixture {
	t.Helper()
	secret := tokenSecret(func(s *corev1.Secret) { s.Namespace, s.Name = "ns", "s" })
	return newFixture(
		t, secret, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "account"}},
	)
}

func (f *fixture) at(days float64) Result {
	f.t.Helper()
	f.clock.SetTime(day0.Add(time.Duration(days * float64(24*time.Hour))))
	r := f.manager.Ensure(f.t.Context(), f.want)
	if now := f.clock.Now(); !r.Next.After(now) || r.Next.After(now.Add(checkInterval)) {
		f.t.Errorf("next %s, now %s", r.Next, now)
	}
	return r
}

// fail makes every request of a verb and a resource fail.
func (f *fixture) fail(verb, resource string, err error) {
	f.client.PrependReactor(
		verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err },
	)
}

func (f *fixture) check(what string, r Result, works bool, reason string, texts ...string) {
	f.t.Helper()
	if f.clock.Now().Before(r.NotAfter) != works {
		f.t.Errorf("%s: not after %s", what, r.NotAfter)
	}
	if reason == "" {
		if r.Problem != nil {
			f.t.Errorf("%s: %+v", what, r.Problem)
		}
		return
	}
	if r.Problem == nil || r.Problem.Reason != reason {
		f.t.Fatalf("%s: %+v, want %s", what, r.Problem, reason)
	}
	for _, text := range texts {
		if !strings.Contains(r.Problem.Message, text) {
			f.t.Errorf("%s: %s; want %q", what, r.Problem.Message, text)
		}
	}
}

func TestTokensOfADeletedAccountDoNotWork(t *testing.T) {
	f := tokenFixture(t)
	f.check("a token", f.at(0), true, "")
	if err := f.client.CoreV1().ServiceAccounts("ns").Delete(t.Context(), "sa", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.check("no account", f.at(1), false, contract.RenewalFailed, "read ServiceAccount ns/sa: ")
}

func TestErrorOfARenewalIsReportedWithItsCause(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", errors.New("no rule"))
	unreadable := apierrors.NewInternalError(errors.New("kms: unable to decrypt"))
	for _, test := range []struct {
		name           string
		verb, resource string
		err            error
		known          bool // the Secret was read before
		works          bool
	}{
		{"no right to request a token", "create", "serviceaccounts", forbidden, true, true},
		{"the account cannot be read", "get", "serviceaccounts", forbidden, true, true},
		{"the Secret cannot be decrypted", "get", "secrets", unreadable, true, true},
		{"the Secret was never readable", "get", "secrets", unreadable, false, false},
	} {
		f := tokenFixture(t)
		if test.known {
			r := f.at(14.9)
			f.check(test.name, r, true, "")
			if !r.NotAfter.Equal(day0.Add(days(30))) || !r.RenewAt.Equal(day0.Add(days(15))) {
				t.Errorf("%s: %+v", test.name, r)
			}
		}
		f.fail(test.verb, test.resource, test.err)
		r := f.at(15)
		texts := []string{test.err.Error()}
		if test.known {
			texts = append(texts, "the token in Secret ns/s expires at 2026-01-31T00:00:00Z")
		}
		f.check(test.name, r, test.works, contract.RenewalFailed, texts...)
		if r.Problem != nil && apierrors.IsForbidden(r.Problem) != apierrors.IsForbidden(test.err) {
			t.Errorf("%s: the cause is lost: %v", test.name, r.Problem)
		}
		if known := !r.NotAfter.IsZero(); known != test.known {
			t.Errorf("%s: not after %s", test.name, r.NotAfter)
		}
		if test.known {
			f.check(test.name+", a second before its end", f.at(30-1./86400), true, contract.RenewalFailed, test.err.Error())
			f.check(
				test.name+", expired", f.at(30), false, contract.RenewalFailed, test.err.Error(),
				"expired at 2026-01-31T00:00:00Z",
			)
		}
	}
}

// Whatever this process's clock is: the token's own end is another.
func TestServerDecidesTheLifetimeOfAToken(t *testing.T) {
	f := newFixture(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "account"}})
	f.client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))},
			Status: authenticationv1.TokenRequestStatus{
				Token: "secret", ExpirationTimestamp: metav1.NewTime(day0.Add(time.Hour)),
			},
		}, nil
	})
	r := f.at(100)
	f.check("a new token", r, true, "")
	if want := f.clock.Now().Add(10 * time.Minute); !r.NotAfter.Equal(want) {
		t.Errorf("not after %s, want %s", r.NotAfter, want)
	}
}
