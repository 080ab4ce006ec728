package reportercontroller

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

type objectList = []*unstructured.Unstructured

// A failing object must not stop the work on the others, wherever it is in the plan. Encrypted ConfigMaps cannot be
// written or deleted while the plugin is unhealthy. Only without an API server, each would fail as late as the first.
func TestObjectThatFailsStopsNoOther(t *testing.T) {
	pod := func(name string) *unstructured.Unstructured { return object("v1", "Pod", "own", name) }
	configMap, copied := object("v1", "ConfigMap", "own", "earlier"), object("v1", "ConfigMap", "own", "copied")
	unhealthy := apierrors.NewInternalError(errors.New("the plugin is unhealthy"))
	const noServer = "no API server"
	for name, c := range map[string]struct {
		verb, of string
		err      error
		reason   delivery.Reason
	}{
		"a ConfigMap that cannot be deleted": {"delete", "configmaps", unhealthy, contract.RequestFailed},
		"a ConfigMap that cannot be written": {"patch", "configmaps", unhealthy, contract.RequestFailed},
		"a pod that is invalid": {"create", "pods", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "first", nil),
			contract.Refused},
		noServer: {"create", "pods", &url.Error{Op: "Post", Err: errors.New("connection refused")}, contract.RequestFailed},
	} {
		client := newClient(configMap, pod("old"))
		client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, copied, client.Tracker().Add(copied)
		})
		failed := false
		client.PrependReactor(c.verb, c.of, func(clienttesting.Action) (bool, runtime.Object, error) {
			first := !failed
			failed = true
			return first, nil, c.err
		})
		outcome := executor(client).reconcile(t.Context(), anyServer(), &Plan{
			Apply:  objectList{pod("first"), copied, pod("second")},
			Delete: objectList{configMap, pod("old")},
		})
		if outcome.Status.Reason != c.reason || outcome.Err == nil {
			t.Errorf("%s: %+v", name, outcome.Status)
		}
		if name == noServer {
			if n := len(client.Actions()); n != 1 {
				t.Errorf("%s: %d requests", name, n)
			}
			continue
		}
		if exists(t, client, configMap) != (c.verb == "delete") || exists(t, client, copied) != (c.verb != "patch") ||
			exists(t, client, pod("first")) != (c.verb != "create") || !exists(t, client, pod("second")) ||
			exists(t, client, pod("old")) {
			t.Errorf("%s: another object was not written: %v", name, client.Actions())
		}
	}
}

// A removal must also find objects that were created while others were forbidden.
func TestObjectsMadeBesideForbiddenOnesAreRecorded(t *testing.T) {
	all := objectList{object("rbac.authorization.k8s.io/v1", "Role", "ns", "reporter"),
		object("v1", "ServiceAccount", "ns", "reporter"), object("v1", "ConfigMap", "ns", "reporter")}
	before, after := delivery.State{Namespace: "ns"}, delivery.State{Namespace: "ns", Role: true, InTarget: true}
	role := delivery.State{Namespace: "ns", Role: true}
	for forbidden, want := range map[string]delivery.State{"roles serviceaccounts configmaps": before,
		"serviceaccounts configmaps": role, "configmaps": after} {
		client := newClient()
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, object("v1", "Any", a.GetNamespace(), "reporter"), nil
		})
		for resource := range strings.FieldsSeq(forbidden) {
			failPatch(client, resource, noRight(resource))
		}
		s := anyServer()
		s.State = before
		outcome := executor(client).reconcile(t.Context(), s, &Plan{State: after, Apply: all,
			Anchor: object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "reporter")})
		if diff := cmp.Diff(want, outcome.Recorded.State); diff != "" || outcome.Status.Reason != contract.Forbidden {
			t.Errorf("%s are forbidden: %+v, %s", forbidden, outcome.Status, diff)
		}
	}
}

// An injection is recorded before it is made. Its removal must end although it was never allowed.
func TestInjectionThatWasNotAllowedNeedsNoRemoval(t *testing.T) {
	for _, made := range []bool{true, false} {
		client, s := newClient(), anyServer()
		failPatch(client, "deployments", noRight("deployments"))
		if s.Deployment = deployment(1); made {
			s.Deployment.Spec.Template.Spec = apiPod("", "", withReporter).Spec
		}
		outcome := executor(client).reconcile(t.Context(), s, &Plan{Eject: true,
			State: delivery.State{Injected: &delivery.Injected{Deployment: "apiserver"}}})
		if left := outcome.Recorded.State.Injected != nil; left != made || (outcome.Err != nil) != made {
			t.Errorf("made %t: recorded %t, %v", made, left, outcome.Err)
		}
	}
}

// A pod is created again only after the pod of the same name is gone.
func TestPodThatIsDeletedIsNotWrittenBeforeItIsGone(t *testing.T) {
	pod := object("v1", "Pod", "own", "companion")
	pod.SetUID("ended")
	next := object("v1", "Pod", "own", "companion")
	next.SetLabels(map[string]string{"changed": "true"})
	client, s := newClient(pod), anyServer()
	s.Own = objectList{pod}
	outcome := executor(client).reconcile(t.Context(), s, &Plan{Apply: objectList{next}, Delete: objectList{pod}})
	if actions := client.Actions(); outcome.Err != nil || len(actions) != 1 || actions[0].GetVerb() != "delete" {
		t.Errorf("%v, %v", actions, outcome.Err)
	}
	failPatch(client, "pods", apierrors.NewNotFound(informers.Pods.GroupResource(), "companion"))
	next.SetUID("ended")
	if outcome := executor(client).reconcile(t.Context(), s, &Plan{Apply: objectList{next}}); outcome.Err != nil {
		t.Errorf("it was deleted before its files were written: %v", outcome.Err)
	}
}

// A working agent must not be replaced by one that admission denies.
func TestDaemonSetWhosePodsAreDeniedIsNotApplied(t *testing.T) {
	s := fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1", onHost)))
	before := ofKind(ComputePlan(s).Apply, "DaemonSet")[0]
	denied := apierrors.NewForbidden(informers.Pods.GroupResource(), "agent-", errors.New("may not mount the folders"))
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "agent-", nil)
	for name, c := range map[string]struct {
		answer         error
		image          string
		asked, applied bool
		reason         delivery.Reason
	}{
		"denied":                                {denied, "reporter:2", true, false, contract.Forbidden},
		"invalid":                               {invalid, "reporter:2", true, false, contract.Refused},
		"let in":                                {nil, "reporter:2", true, true, contract.AsExpected},
		"no answer to a dry run":                {apierrors.NewBadRequest("no dry runs"), "reporter:2", true, true, contract.AsExpected},
		"denied, with the template that it has": {denied, "reporter:1", false, true, contract.AsExpected},
	} {
		client, applied, asked := newClient(), false, false
		client.PrependReactor("patch", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			applied = true
			return true, before, nil
		})
		client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			asked = slices.Equal(a.(clienttesting.CreateActionImpl).CreateOptions.DryRun, []string{metav1.DryRunAll})
			return true, &unstructured.Unstructured{}, c.answer
		})
		s.Own, s.Config.Image = objectList{before}, c.image
		got := executor(client).reconcile(t.Context(), s, &Plan{Apply: ofKind(ComputePlan(s).Apply, "DaemonSet"),
			Status: delivery.Status{Reason: contract.AsExpected}})
		if asked != c.asked || applied != c.applied || got.Status.Reason != c.reason ||
			c.reason == contract.Forbidden && !strings.HasSuffix(got.Status.Message, "may not mount the folders") {
			t.Errorf("%s: asked %t, applied %t, %+v", name, asked, applied, got.Status)
		}
	}
}

// The errors are those that kube-apiserver makes of decisions by webhooks, admission plugins and RBAC.
func TestDenialsAreForbidden(t *testing.T) {
	webhook := func(s metav1.Status) error {
		s.Message = "no"
		return webhookerrors.ToStatusErr("pods.example.com", &s)
	}
	forbidden := func(kind, text string, causes ...metav1.StatusCause) error {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "x", errors.New(text))
		err.ErrStatus.Details.Causes = causes
		return err
	}
	for name, c := range map[string]struct {
		err    error
		reason delivery.Reason
	}{
		"a webhook's, with its defaults": {webhook(metav1.Status{}), contract.Forbidden},
		"a webhook's, with a code":       {webhook(metav1.Status{Code: 403}), contract.Forbidden},
		"a webhook's, with a reason": {webhook(metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden}),
			contract.Forbidden},
		"a pod's, by a quota": {forbidden("pods", "exceeded quota"), contract.Forbidden},
		"a missing right":     {forbidden("roles", "cannot patch"), contract.Forbidden},
		"a policy's": {forbidden("configmaps", "denied request", metav1.StatusCause{Message: "denied request"}),
			contract.Forbidden},
		"no denial: a webhook without dry runs": {webhookerrors.NewDryRunUnsupportedErr("pods.example.com"),
			contract.RequestFailed},
		"no denial: a webhook that cannot be called": {apierrors.NewInternalError(errors.New("no route")),
			contract.RequestFailed},
		"a namespace that is being deleted": {forbidden("configmaps", "it is being terminated",
			metav1.StatusCause{Type: corev1.NamespaceTerminatingCause}), contract.NamespaceMissing},
	} {
		t.Run(name, func(t *testing.T) {
			got := problemOf(fmt.Errorf("create: %w", c.err))
			if got.Reason != c.reason || !strings.Contains(got.Message, c.err.Error()) {
				t.Errorf("%+v, want %s", got, c.reason)
			}
			if is := denied(c.err); is != (c.reason != contract.RequestFailed) {
				t.Errorf("denied: %t", is)
			}
		})
	}
}
