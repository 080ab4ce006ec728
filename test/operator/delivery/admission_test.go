//go:build integration

package delivery

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// An image policy that is installed later rewrites the image of the injected container at the owner's next change, and
// at each apply. The operator must not treat that as a revert by the owner, and must not apply again. It must report a
// real revert once, and must not undo it.
func TestRevertIsTheOwnersAndNotOfAdmissionThatRewritesTheImage(t *testing.T) {
	ns := apiservers.OpenShift.Namespace
	op := fixture.NewOperator(t)
	fixture.Deploy(t, "1", "1", "identity")
	bare := fixture.DeploymentNow(t).Spec.Template
	op.Start(fixture.Targets(fixture.OpenShiftAPIServer()))
	fixture.AwaitDelivered(t, apiservers.OpenShift)
	fixture.AwaitPods(t, ns, "apiserver=true", 3)

	rewriteImage(t, ns)
	fixture.Eventually(t, "the owner's change gets the other image", func() error {
		d := fixture.DeploymentNow(t)
		d.Annotations = map[string]string{"changed": time.Now().String()}
		if _, err := fixture.Kube.AppsV1().Deployments(ns).Update(t.Context(), d, metav1.UpdateOptions{FieldManager: "the-owner"}); err != nil {
			return err
		}
		return hasImage(t, mirrored)
	})
	fixture.AwaitPods(t, ns, "apiserver=true", 3)
	generation := fixture.DeploymentNow(t).Generation
	steady := func(step string) {
		t.Helper()
		fixture.Never(t, 2*time.Second, func() error {
			c := fixture.Resource(t, apiservers.OpenShift).Conditions[contract.HealthReporting]
			if c.Reason == "InjectionReverted" {
				return fmt.Errorf("%s: %s", step, c.Message)
			}
			if now := fixture.DeploymentNow(t).Generation; now != generation {
				return fmt.Errorf("%s: generation %d, was %d", step, now, generation)
			}
			return nil
		})
	}
	steady("after the owner's change")
	op.Configure(fixture.Every("11s", fixture.OpenShiftAPIServer()))
	steady("after another interval")
	op.Restart(syscall.SIGKILL)
	fixture.AwaitDelivered(t, apiservers.OpenShift)
	steady("after a restart of the operator")

	fixture.Eventually(t, "the owner's update is accepted", func() error {
		d := fixture.DeploymentNow(t)
		d.Spec.Template = *bare.DeepCopy()
		_, err := fixture.Kube.AppsV1().Deployments(ns).Update(t.Context(), d, metav1.UpdateOptions{FieldManager: "the-owner"})
		return err
	})
	generation = fixture.DeploymentNow(t).Generation
	reverted := fixture.AwaitRollUp(t, apiservers.OpenShift, contract.HealthReporting, "False", "InjectionReverted")
	if m := reverted.Message; !strings.Contains(m, "openshift-apiserver/apiserver") || !strings.Contains(m, "kubectl annotate clusterrole") {
		t.Errorf("the message does not name the fix: %s", m)
	}
	op.Kill(syscall.SIGKILL)
	op.Start(fixture.Every("12s", fixture.OpenShiftAPIServer()))
	fixture.AwaitDescribed(t, "every 12s", 1) // the operator has synced
	must.Equal(t, "the generation of the Deployment", fixture.DeploymentNow(t).Generation, generation)
}

const mirrored = "mirror.example/reporter:1"

func hasImage(t *testing.T, want string) error {
	t.Helper()
	for _, c := range fixture.DeploymentNow(t).Spec.Template.Spec.Containers {
		if c.Name == contract.ReporterContainer && c.Image == want {
			return nil
		}
	}
	return fmt.Errorf("the container has another image")
}

// rewriteImage installs an admission policy that replaces the image of the reporter's container.
func rewriteImage(t *testing.T, namespace string) {
	t.Helper()
	reporter := fmt.Sprintf("object.spec.template.spec.containers.exists(c, c.name == '%s')", contract.ReporterContainer)
	mutate(t, "rewrite-the-reporters-image", reporter, rule(namespace, "apps", "deployments", admissionv1.Create, admissionv1.Update), applyConfiguration(fmt.Sprintf(
		`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
			containers: [Object.spec.template.spec.containers{name: '%s', image: '%s'}]}}}}`, contract.ReporterContainer, mirrored)))
}

// isReporter is true for pods that the operator created.
const isReporter = "has(object.metadata.labels) && object.metadata.labels[?'app.kubernetes.io/name'].orValue('') == 'kms-health-reporter'"

// rule matches one resource in a namespace.
func rule(namespace, group, resource string, operations ...admissionv1.OperationType) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: operations,
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}},
	}
}

func applyConfiguration(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: expression}}
}

func jsonPatch(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}
}

// mutate installs a mutating admission policy for objects for which condition is true.
func mutate(t *testing.T, name, condition string, match *admissionv1.MatchResources, mutations ...admissionv1.Mutation) {
	t.Helper()
	admission := fixture.Kube.AdmissionregistrationV1()
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints:   match,
		MatchConditions:    []admissionv1.MatchCondition{{Name: "matches", Expression: condition}},
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		Mutations:          mutations,
	}}
	create(t, admission.MutatingAdmissionPolicies(), policy)
	create(t, admission.MutatingAdmissionPolicyBindings(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: policy.ObjectMeta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}})
}

// client is a typed client.
type client[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// create creates an object, until the test ends or end is called.
func create[T metav1.Object](t *testing.T, api client[T], o T) (end func()) {
	t.Helper()
	_, err := api.Create(t.Context(), o, metav1.CreateOptions{})
	must.Succeed(t, err)
	end = sync.OnceFunc(func() {
		if err := api.Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

// withoutCPU removes a container's CPU request, as OpenShift's workload partitioning does.
var withoutCPU = jsonPatch("[JSONPatch{op: 'remove', path: '/spec/containers/0/resources/requests/cpu'}]")

// awaitAdmission waits until a policy is active: it creates a pod as a dry run until is returns true.
func awaitAdmission(t *testing.T, what string, is func(pod *corev1.Pod, err error) bool) {
	t.Helper()
	fixture.Eventually(t, what, func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tried", Labels: map[string]string{"app.kubernetes.io/name": "kms-health-reporter"}}}
		pod.Spec.NodeName = fixture.NodeNames[0]
		limited := corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		cpu := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")}}
		pod.Spec.Containers = []corev1.Container{{Name: contract.ReporterContainer, Image: "reporter:1", SecurityContext: &limited, Resources: cpu}}
		pod.Spec.AutomountServiceAccountToken = new(false)
		created, err := fixture.Kube.CoreV1().Pods(fixture.Namespace).Create(context.WithoutCancel(t.Context()), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !is(created, err) {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
}

// awaitDenial waits until pods are denied with a message.
func awaitDenial(t *testing.T, message string) {
	t.Helper()
	awaitAdmission(t, "pods are denied: "+message, func(_ *corev1.Pod, err error) bool {
		return err != nil && strings.Contains(err.Error(), message)
	})
}

// Admission may change a pod at its creation: OpenShift's workload partitioning removes CPU requests. The operator must
// keep such a pod, and write only its annotations.
func TestPodsThatAdmissionChangedAtCreationAreKept(t *testing.T) {
	changed := func(pod *corev1.Pod) bool {
		c := &pod.Spec.Containers[0]
		_, has := c.Resources.Requests[corev1.ResourceCPU]
		return c.Image == mirrored && !has
	}
	// A deleted policy stays active for a moment, and would change the pods of the next test.
	t.Cleanup(func() {
		awaitAdmission(t, "the policy is in use no more", func(pod *corev1.Pod, err error) bool { return err == nil && !changed(pod) })
	})
	mutate(t, "change-reporters", isReporter, rule(fixture.Namespace, "", "pods", admissionv1.Create),
		withoutCPU, applyConfiguration(fmt.Sprintf("Object{spec: Object.spec{containers: [Object.spec.containers{name: '%s', image: '%s'}]}}", contract.ReporterContainer, mirrored)))
	awaitAdmission(t, "the policy is in use", func(pod *corev1.Pod, err error) bool { return err == nil && changed(pod) })
	op := fixture.StartOperator(t, fixture.InPod)
	for _, pod := range fixture.AwaitPods(t, fixture.Namespace, fixture.Companions, 3) {
		if !changed(&pod) {
			t.Fatalf("pod %s is not changed by admission", pod.Name)
		}
	}
	fixture.AwaitDelivered(t, apiservers.Kube)
	before := fixture.PodUIDs(t, fixture.Companions)
	seen := fixture.RecordConditions(t, apiservers.Kube)

	op.Restart(syscall.SIGKILL)
	op.Configure(fixture.Every("11s", apiservers.Kube.Target()))
	fixture.AwaitDescribed(t, "every 11s", len(fixture.NodeNames))
	must.Equal(t, "the pods", fixture.PodUIDs(t, fixture.Companions), before)
	must.Succeed(t, seen.None("Refused"))
}
