package reportercontroller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

// executor returns a Controller with what reconcile needs.
func executor(client *dynamicfake.FakeDynamicClient) *Controller {
	return &Controller{applier: ssa.New(client), Options: Options{
		Client: client, Now: time.Now, Event: func(_, _, _, _ string) {},
	}}
}

// A pod may mount a ConfigMap before the watch shows the pod. The ConfigMap stays, unless the whole target is removed.
func TestConfigMapMountedByAPodThatTheWatchHasNotDeliveredStays(t *testing.T) {
	for name, test := range map[string]struct {
		labels   map[string]any
		mounted  string
		deleting bool
		stays    bool
	}{
		"mounted":                 {map[string]any{"apiserver": "true"}, "set", false, true},
		"another is mounted":      {map[string]any{"apiserver": "true"}, "other", false, false},
		"not a pod of the target": {map[string]any{"apiserver": "false"}, "set", false, false},
		"the target is removed":   {map[string]any{"apiserver": "true"}, "set", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			configMap := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "set", "namespace": "there"},
			}}
			pod := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "pod", "namespace": "there",
					"labels": test.labels},
				"spec": map[string]any{"volumes": []any{
					map[string]any{"name": "token", "secret": map[string]any{"secretName": "token"}},
					map[string]any{"name": "config", "configMap": map[string]any{"name": test.mounted}},
				}},
			}}
			client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), configMap, pod)
			c := executor(client)
			s := &Snapshot{Deleting: test.deleting}
			s.Target = &v1alpha1.APIServer{Name: "target", Namespace: "there",
				PodSelector: map[string]string{"apiserver": "true"}}
			outcome := c.reconcile(t.Context(), s, &Plan{State: delivery.State{Namespace: "there"},
				Delete: []*unstructured.Unstructured{configMap}})
			if outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
			_, err := client.Resource(schema.GroupVersionResource{Version: "v1",
				Resource: "configmaps"}).Namespace("there").Get(t.Context(), "set", metav1.GetOptions{})
			if test.stays && err != nil || !test.stays && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
}

// Encrypted ConfigMaps cannot be deleted while the plugin is unhealthy.
func TestConfigMapThatCannotBeDeletedKeepsNoPod(t *testing.T) {
	object := func(kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind,
			"metadata": map[string]any{"name": "earlier", "namespace": "own"}}}
	}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), object("ConfigMap"), object("Pod"))
	client.PrependReactor("delete", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("the plugin is unhealthy"))
	})
	c := executor(client)
	s := &Snapshot{}
	s.Target = &v1alpha1.APIServer{Name: "target", Namespace: "there"}
	copied := object("ConfigMap")
	copied.SetName("copied")
	written := false
	client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		written = true
		return true, copied, nil
	})
	outcome := c.reconcile(t.Context(), s, &Plan{
		State: delivery.State{Namespace: "there"}, Delete: []*unstructured.Unstructured{object("ConfigMap"), object("Pod")},
		Apply: []*unstructured.Unstructured{copied},
	})
	if !written {
		t.Error("the ConfigMap of another plugin was not written")
	}
	if outcome.Status.Reason != contract.RequestFailed {
		t.Errorf("%+v", outcome.Status)
	}
	if _, err := client.Resource(informers.Pods).Namespace("own").Get(t.Context(), "earlier",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod: %v", err)
	}
}

// A removal must also find objects that were created while others were forbidden.
func TestObjectsMadeBesideForbiddenOnesAreRecorded(t *testing.T) {
	object := func(apiVersion, kind, namespace string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"name": "reporter", "namespace": namespace}}}
	}
	all := []*unstructured.Unstructured{object("rbac.authorization.k8s.io/v1", "Role", "there"),
		object("v1", "ServiceAccount", "there"), object("v1", "ConfigMap", "there")}
	before, after := delivery.State{Namespace: "there"}, delivery.State{Namespace: "there", Role: true, InTarget: true, Token: true}
	role := before
	role.Role = true
	for forbidden, want := range map[string]delivery.State{"roles serviceaccounts configmaps": before,
		"serviceaccounts configmaps": role, "configmaps": after} {
		client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if strings.Contains(forbidden, a.GetResource().Resource) && a.GetNamespace() != "" {
				return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "reporter", errors.New("exceeded quota"))
			}
			return true, object("v1", "Any", a.GetNamespace()), nil
		})
		c := executor(client)
		s := &Snapshot{State: before}
		s.Target = &v1alpha1.APIServer{Name: "target", Namespace: "there"}
		outcome := c.reconcile(t.Context(), s, &Plan{State: after, Anchor: object("rbac.authorization.k8s.io/v1",
			"ClusterRole", ""), Apply: all})
		if outcome.Status.Reason != contract.Forbidden {
			t.Errorf("%s: %+v", forbidden, outcome.Status)
		}
		if diff := cmp.Diff(want, outcome.Recorded.State); diff != "" {
			t.Errorf("%s are forbidden: %s", forbidden, diff)
		}
	}
}

// A failing object must not stop the work on the others, wherever it is in the plan.
func TestObjectThatFailsStopsNoOther(t *testing.T) {
	object := func(kind, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind,
			"metadata": map[string]any{"name": name, "namespace": "own"}}}
		return o
	}
	old := object("Pod", "old")
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), old)
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if o := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured); o.GetName() == "first" {
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "first", nil)
		}
		return false, nil, nil
	})
	c := executor(client)
	s := &Snapshot{}
	s.Target = &v1alpha1.APIServer{Name: "target", Namespace: "there"}
	outcome := c.reconcile(t.Context(), s, &Plan{
		Apply:  []*unstructured.Unstructured{object("Pod", "first"), object("Pod", "second")},
		Delete: []*unstructured.Unstructured{old},
	})
	if outcome.Status.Reason != contract.Refused || outcome.Err == nil ||
		!strings.Contains(outcome.Status.Message, "first") {
		t.Errorf("%+v", outcome.Status)
	}
	list, err := client.Resource(informers.Pods).Namespace("own").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "second" {
		t.Errorf("left: %v, %v", list, err)
	}
}

// A pod is created again only after the pod of the same name is gone.
func TestPodThatIsDeletedIsNotWrittenBeforeItIsGone(t *testing.T) {
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "companion", "namespace": "own", "uid": "ended"}}}
	next := pod.DeepCopy()
	next.SetUID("")
	next.SetLabels(map[string]string{"changed": "true"})
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), pod)
	s := &Snapshot{Own: []*unstructured.Unstructured{pod}}
	s.Target = &v1alpha1.APIServer{Name: "target", Namespace: "there"}
	outcome := executor(client).reconcile(t.Context(), s, &Plan{Apply: []*unstructured.Unstructured{next},
		Delete: []*unstructured.Unstructured{pod}})
	var verbs []string
	for _, a := range client.Actions() {
		verbs = append(verbs, a.GetVerb())
	}
	if outcome.Err != nil || !slices.Equal(verbs, []string{"delete"}) {
		t.Errorf("%v, %v", verbs, outcome.Err)
	}
}

// A working agent must not be replaced by one that admission denies.
func TestDaemonSetWhosePodsAreDeniedIsNotApplied(t *testing.T) {
	s := fixture(t, v1alpha1.ModeDaemonSet, pods(apiPod("a", "1", onHost)))
	plan := ComputePlan(s)
	before := plan.Apply[slices.IndexFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" })]
	denied := apierrors.NewForbidden(informers.Pods.GroupResource(), "agent-", errors.New("may not mount the folders /run/kms"))
	for name, c := range map[string]struct {
		answer  error
		image   string
		asked   bool
		applied bool
		reason  delivery.Reason
	}{
		"denied":                                {denied, "reporter:2", true, false, contract.Forbidden},
		"invalid":                               {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "agent-", nil), "reporter:2", true, false, contract.Refused},
		"let in":                                {nil, "reporter:2", true, true, contract.AsExpected},
		"no answer to a dry run":                {apierrors.NewBadRequest("no dry runs"), "reporter:2", true, true, contract.AsExpected},
		"denied, with the template that it has": {denied, "reporter:1", false, true, contract.AsExpected},
	} {
		client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
		applied, asked := false, false
		client.PrependReactor("patch", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			applied = true
			return true, before, nil
		})
		client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			asked = slices.Equal(a.(clienttesting.CreateActionImpl).CreateOptions.DryRun, []string{metav1.DryRunAll})
			return true, &unstructured.Unstructured{}, c.answer
		})
		controller := executor(client)
		s.Own, s.Config.Image = []*unstructured.Unstructured{before}, c.image
		daemonSets := ofKind(ComputePlan(s).Apply, "DaemonSet")
		got := controller.reconcile(t.Context(), s, &Plan{Apply: daemonSets, Status: delivery.Status{Reason: contract.AsExpected}})
		if asked != c.asked || applied != c.applied || got.Status.Reason != c.reason ||
			errors.Is(c.answer, denied) && asked && !strings.HasSuffix(got.Status.Message, "may not mount the folders /run/kms") {
			t.Errorf("%s: asked %t, applied %t, %+v", name, asked, applied, got.Status)
		}
	}
}

// No right is missing, so the message must not ask for the manifests.
func TestNamespaceThatIsBeingDeletedIsNotForbidden(t *testing.T) {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x",
		errors.New("unable to create new content in namespace there because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	got := problemOf(fmt.Errorf("apply ConfigMap there/x: %w", err))
	if got.Reason != contract.NamespaceMissing || !strings.HasSuffix(got.Message, "it is being terminated") {
		t.Errorf("%+v", got)
	}
}
