package credentials

import (
	"errors"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// fixture is a Manager with a client certificate, valid from day0 for 360 days, at a
// clock that the test sets.
type fixture struct {
	t       *testing.T
	client  *fake.Clientset
	clock   *testclock.FakePassiveClock
	manager *Manager
	want    Request
}

func newFixture(t *testing.T, kind v1alpha1.Credentials, objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, client: fake.NewClientset(objects...), clock: testclock.NewFakePassiveClock(day0),
		want: Request{Kind: kind, Namespace: "ns", Secret: "s", ServiceAccount: "sa"}}
	f.manager = New(f.client, f.clock)
	return f
}

func certificateFixture(t *testing.T) *fixture {
	t.Helper()
	secret := tlsSecret(signed(t, User))
	secret.ObjectMeta = metav1.ObjectMeta{Namespace: "ns", Name: "s"}
	return newFixture(t, v1alpha1.CredentialsClientCertificate, secret)
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

// setCondition sets a condition of the request, as an administrator or the signer does.
func (f *fixture) setCondition(kind certificatesv1.RequestConditionType) {
	f.t.Helper()
	requests := f.client.CertificatesV1().CertificateSigningRequests()
	live, err := requests.Get(f.t.Context(), CSRName("ns", "s"), metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	live.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: kind, Status: corev1.ConditionTrue, Reason: "Policy", Message: "no", LastUpdateTime: metav1.NewTime(f.clock.Now())}}
	if _, err := requests.UpdateStatus(f.t.Context(), live, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// fail makes every request of a verb and a resource fail.
func (f *fixture) fail(verb, resource string, err error) {
	f.client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func (f *fixture) check(what string, r Result, ready bool, reason Reason, texts ...string) {
	f.t.Helper()
	if r.Ready != ready {
		f.t.Errorf("%s: ready %t", what, r.Ready)
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

func TestRenewalThatAwaitsApprovalIsReportedWhileTheOldCertificateWorks(t *testing.T) {
	f := certificateFixture(t)
	r := f.at(179)
	f.check("before half its life", r, true, "")
	if !r.NotAfter.Equal(day0.Add(days(360))) || !r.RenewAt.Equal(day0.Add(days(180))) {
		t.Errorf("%+v", r)
	}
	const approve = "run `oc adm certificate approve s.ns` or `kubectl certificate approve s.ns`"
	f.check("at half its life", f.at(180), true, ReasonAwaitingApproval, approve, "the credential in Secret ns/s expires at 2026-12-27T00:00:00Z")
	f.check("a second before its end", f.at(360-1./86400), true, ReasonAwaitingApproval, approve)
	f.check("after its end", f.at(360), false, ReasonCredentialsExpired, approve, "the credential in Secret ns/s expired at 2026-12-27T00:00:00Z")
}

func TestDeniedOrFailedRenewalIsReportedWhileTheOldCertificateWorks(t *testing.T) {
	for kind, want := range map[certificatesv1.RequestConditionType]struct {
		reason Reason
		text   string
	}{
		certificatesv1.CertificateDenied: {ReasonRequestDenied, "CertificateSigningRequest s.ns was denied (Policy: no); another request is made at 2026-06-30T01:00:00Z"},
		certificatesv1.CertificateFailed: {ReasonRenewalFailed, "CertificateSigningRequest s.ns failed (Policy: no); another request is made at 2026-06-30T01:00:00Z"},
	} {
		f := certificateFixture(t)
		f.at(180)
		f.setCondition(kind)
		f.check(string(kind), f.at(180), true, want.reason, want.text, "expires at 2026-12-27T00:00:00Z")
		f.check(string(kind)+", after an hour", f.at(180+1./24), true, ReasonAwaitingApproval)
	}
}

func TestRenewalInProgressIsReportedOnlyWhenItTakesTooLong(t *testing.T) {
	f := certificateFixture(t)
	f.want.Approve = true
	f.check("just approved", f.at(180), true, "")
	f.setCondition(certificatesv1.CertificateApproved)
	f.check("not signed yet", f.at(180+4./1440), true, "")
	f.check("never signed", f.at(180+5./1440), true, ReasonRenewalFailed, "has not signed CertificateSigningRequest s.ns yet, for 5m0s now")

	f = newFixture(t, v1alpha1.CredentialsMintedToken)
	f.check("no account yet", f.at(0), false, ReasonProgressing, "ServiceAccount ns/sa does not exist")
	f.check("never an account", f.at(1), false, ReasonRenewalFailed, "ServiceAccount ns/sa does not exist, for 24h0m0s now")
}

func TestErrorOfARenewalIsReportedWithItsCause(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", errors.New("no rule"))
	unreadable := apierrors.NewInternalError(errors.New("kms: unable to decrypt"))
	for _, test := range []struct {
		name           string
		verb, resource string
		err            error
		known          bool // the Secret was read before
		ready          bool
	}{
		{"no right to make a request", "create", "certificatesigningrequests", forbidden, true, true},
		{"requests cannot be read", "get", "certificatesigningrequests", forbidden, true, true},
		{"the Secret cannot be decrypted", "get", "secrets", unreadable, true, true},
		{"the Secret was never readable", "get", "secrets", unreadable, false, false},
	} {
		f := certificateFixture(t)
		if test.known {
			f.check(test.name, f.at(1), true, "")
		}
		f.fail(test.verb, test.resource, test.err)
		r := f.at(180)
		f.check(test.name, r, test.ready, ReasonRenewalFailed, test.err.Error())
		if r.Problem != nil && apierrors.IsForbidden(r.Problem) != apierrors.IsForbidden(test.err) {
			t.Errorf("%s: the cause is lost: %v", test.name, r.Problem)
		}
		if known := !r.NotAfter.IsZero(); known != test.known {
			t.Errorf("%s: not after %s", test.name, r.NotAfter)
		}
		if test.known {
			f.check(test.name+", expired", f.at(361), false, ReasonCredentialsExpired, test.err.Error())
		}
	}
}

func TestTokenIsReadyWhileItsAccountCannotBeRead(t *testing.T) {
	secret := tokenSecret(func(s *corev1.Secret) { s.Namespace, s.Name = "ns", "s" })
	f := newFixture(t, v1alpha1.CredentialsMintedToken, secret, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "account"}})
	f.check("new", f.at(1), true, "")
	f.fail("get", "serviceaccounts", errors.New("no route"))
	f.check("account not readable", f.at(2), true, ReasonRenewalFailed, "read ServiceAccount ns/sa: no route", "expires at 2026-01-31T00:00:00Z")
	f.check("expired", f.at(31), false, ReasonCredentialsExpired, "no route")
}
