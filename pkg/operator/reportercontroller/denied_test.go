package reportercontroller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"

	"github.com/kms-health/kms-health/pkg/contract"
)

// The errors are those that kube-apiserver makes of decisions by webhooks, admission plugins and RBAC.
func TestDenialsAreForbiddenAndAMissingRightNamesTheManifests(t *testing.T) {
	pods, roles := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "roles"}
	webhook := func(s metav1.Status) error { return webhookerrors.ToStatusErr("pods.example.com", &s) }
	for name, test := range map[string]struct {
		err       error
		reason    string
		manifests bool
	}{
		"a webhook's, with its defaults": {err: webhook(metav1.Status{Message: "no"}), reason: contract.Forbidden},
		"a webhook's, with a code": {err: webhook(metav1.Status{Message: "no", Code: 403}),
			reason: contract.Forbidden},
		"a webhook's, with a reason": {err: webhook(metav1.Status{Message: "no", Code: 403,
			Reason: metav1.StatusReasonForbidden}), reason: contract.Forbidden},
		"a pod's, by a quota": {err: apierrors.NewForbidden(pods, "x", errors.New("exceeded quota")),
			reason: contract.Forbidden},
		"a missing right": {err: apierrors.NewForbidden(roles, "x", errors.New("cannot patch")),
			reason: contract.Forbidden, manifests: true},
		"a policy's": {err: &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 403,
			Reason: metav1.StatusReasonForbidden, Message: "denied request", Details: &metav1.StatusDetails{Kind: "configmaps",
				Causes: []metav1.StatusCause{{Message: "denied request"}}}}}, reason: contract.Forbidden},
		"no denial: a webhook without dry runs": {err: webhookerrors.NewDryRunUnsupportedErr("pods.example.com"),
			reason: contract.RequestFailed},
		"no denial: a webhook that cannot be called": {err: apierrors.NewInternalError(errors.New("no route")),
			reason: contract.RequestFailed},
	} {
		t.Run(name, func(t *testing.T) {
			got := problemOf(fmt.Errorf("create: %w", test.err))
			if string(got.Reason) != test.reason || strings.Contains(got.Message, "apply the manifests") != test.manifests {
				t.Errorf("%+v, want %s, with the manifests: %t", got, test.reason, test.manifests)
			}
			if is := denied(test.err); is != (test.reason == contract.Forbidden) {
				t.Errorf("denied: %t", is)
			}
		})
	}
}
