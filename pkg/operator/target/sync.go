package target

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/rollup"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Executor does what a plan says.
type Executor struct {
	Client      dynamic.Interface
	Applier     *apply.Applier
	Credentials *credentials.Manager
	Approve     bool // may approve the operator's own certificate requests
	Clock       clock.PassiveClock
	// Event tells of a change. reason is in UpperCamelCase.
	Event func(target, reason, message string)
}

// Do carries a plan out, in order, up to the first error. It returns how soon to
// look again, zero where nothing is waited for but what a watch tells.
func (e *Executor) Do(ctx context.Context, w *World, plan *Plan) (again time.Duration, err error) {
	defer func() {
		if apierrors.IsForbidden(err) {
			// What it may not make in the target's namespace is not there to take back.
			plan.State.InTarget, plan.State.Secrets = w.State.InTarget, w.State.Secrets
			_ = e.remember(ctx, w, plan)
		}
	}()
	soon := func(d time.Duration) {
		if d > 0 && (again == 0 || d < again) {
			again = d
		}
	}
	put := func(objects ...*unstructured.Unstructured) error {
		for _, o := range objects {
			outcome, _, err := e.Applier.Apply(ctx, o, w.find(o))
			if err != nil {
				return err
			}
			switch outcome {
			case apply.Applied:
				e.Event(w.Target.Name, "Applied", apply.Key(o))
			case apply.Lagging:
				soon(time.Second)
			}
		}
		return nil
	}
	if err := e.remember(ctx, w, plan); err != nil {
		return again, err
	}
	if err := put(plan.Apply...); err != nil {
		return again, err
	}
	if c := plan.Credentials; c != nil {
		result, err := e.Credentials.Ensure(ctx, credentials.Request{
			Kind: c.Kind, Namespace: c.Namespace, Secret: c.Name,
			ServiceAccount: render.Name(w.Target.Name), Approve: e.Approve,
			Labels: map[string]string{render.ManagedBy: render.Manager, render.TargetLabel: w.Target.Name, "app.kubernetes.io/name": "kms-health-reporter"},
		})
		if err != nil {
			return again, err
		}
		if !result.Next.IsZero() {
			soon(max(time.Second, result.Next.Sub(e.Clock.Now())))
		}
		if !result.Ready && (plan.Status.Status == "True" || plan.Status.Reason == ReasonProgressing) {
			plan.Status = Status{"False", result.Reason, result.Message}
		}
	}
	if err := put(plan.Workloads...); err != nil {
		return again, err
	}
	if err := e.inject(ctx, w, plan); err != nil {
		return again, err
	}
	if plan.Gone {
		if err := e.Tell(ctx, w, nil); err != nil {
			return again, err
		}
	}
	inUse, err := e.inUse(ctx, w, plan)
	if err != nil {
		return again, err
	}
	for _, o := range plan.Delete {
		if inUse(o.GetKind(), o.GetNamespace(), o.GetName()) {
			soon(time.Second)
			continue
		}
		deleted, err := e.Applier.Delete(ctx, o)
		if err != nil {
			return again, err
		}
		if deleted {
			e.Event(w.Target.Name, "Deleted", apply.Key(o))
		}
	}
	for _, name := range plan.DeleteSecrets {
		if inUse("Secret", plan.State.Namespace, name) {
			soon(time.Second)
			continue
		}
		if err := e.Credentials.Forget(ctx, plan.State.Namespace, name, name == render.CredentialsName(w.Target.Name, v1alpha1.CredentialsClientCertificate)); err != nil {
			return again, err
		}
		e.Event(w.Target.Name, "Deleted", "Secret "+plan.State.Namespace+"/"+name)
		plan.State.Secrets = slices.DeleteFunc(slices.Clone(plan.State.Secrets), func(s string) bool { return s == name })
	}
	return again, e.remember(ctx, w, plan)
}

// inUse says what a pod of the target mounts, of what the plan deletes. Pods that are
// the owner's come whenever they like, and one whose ConfigMap went would never
// start: so it asks the API server, which knows of those that the watch has yet to
// tell of.
func (e *Executor) inUse(ctx context.Context, w *World, plan *Plan) (func(kind, namespace, name string) bool, error) {
	ns := w.Target.Namespace
	here := slices.ContainsFunc(plan.Delete, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ConfigMap" && o.GetNamespace() == ns })
	if w.Going || w.NamespaceMissing || !here && len(plan.DeleteSecrets) == 0 {
		return func(string, string, string) bool { return false }, nil
	}
	list, err := e.Client.Resource(podResource).Namespace(ns).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(w.Target.PodSelector).String()})
	if err != nil {
		return nil, err
	}
	var specs []*corev1.PodSpec
	for i := range list.Items {
		pod, err := podOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		specs = append(specs, &pod.Spec)
	}
	return func(kind, namespace, name string) bool {
		return (kind == "ConfigMap" || kind == "Secret") && namespace == ns &&
			slices.ContainsFunc(specs, func(s *corev1.PodSpec) bool { return mounts(s, name) })
	}, nil
}

// remember keeps the state in the target's ClusterRole.
func (e *Executor) remember(ctx context.Context, w *World, plan *Plan) error {
	if plan.Anchor == nil {
		return nil
	}
	anchor := plan.Anchor.DeepCopy()
	annotations := anchor.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[render.StateAnnotation] = plan.State.String()
	anchor.SetAnnotations(annotations)
	live := w.find(anchor)
	if _, _, err := e.Applier.Apply(ctx, anchor, live); err != nil {
		return err
	}
	if live != nil && !reflect.DeepEqual(live.Object["rules"], anchor.Object["rules"]) {
		e.Event(w.Target.Name, "Applied", apply.Key(anchor)+": its rules were others")
	}
	return nil
}

// inject puts the reporter into a Deployment, or takes it out.
func (e *Executor) inject(ctx context.Context, w *World, plan *Plan) error {
	switch {
	case plan.Eject:
		d := w.Deployment
		bare := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": d.Name, "namespace": d.Namespace, "uid": string(d.UID)},
		}}
		if _, _, err := e.Applier.Apply(ctx, bare, nil); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
		e.Event(w.Target.Name, "Ejected", "Deployment "+d.Namespace+"/"+d.Name)
		plan.State.Injected, plan.State.Intended, plan.State.Reverted, plan.State.Proven = nil, "", false, ""
	case plan.Inject != nil:
		live, err := deploymentObject(w)
		if err != nil {
			return err
		}
		outcome, result, err := e.Applier.Apply(ctx, plan.Inject.Object, live)
		if err != nil {
			return err
		}
		if outcome == apply.Lagging || result == nil {
			return nil
		}
		into, err := InjectedInto(result)
		if err != nil {
			return err
		}
		if outcome == apply.Applied {
			e.Event(w.Target.Name, "Injected", "Deployment "+result.GetNamespace()+"/"+result.GetName())
		}
		into.Sent = plan.State.Intended
		plan.State.Injected = into
	}
	return nil
}

func deploymentObject(w *World) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(w.Deployment)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &o.Object); err != nil {
		return nil, err
	}
	return o, nil
}

// conditionManager owns the condition and nothing else: two applies under one
// manager would each remove what the other wrote.
const conditionManager = "kms-health-operator-delivery"

// Tell writes the condition on the operator resource, or takes it away where
// status is nil, unless it says so already.
func (e *Executor) Tell(ctx context.Context, w *World, status *Status) error {
	if w.Resource == nil || w.Mute {
		return nil
	}
	if status != nil && status.Message == "" {
		return nil // nothing to tell yet
	}
	was, had := w.Resource.Conditions[ConditionType]
	body := map[string]any{
		"apiVersion": "operator.openshift.io/v1", "kind": kindOf[w.Target.Resource], "metadata": map[string]any{"name": "cluster"},
	}
	switch {
	case status == nil && !had:
		return nil
	case status == nil: // an apply without it takes it away
	case had && was.Status == status.Status && was.Reason == status.Reason && was.Message == status.Message:
		return nil
	default:
		c := rollup.Condition{Type: ConditionType, Status: status.Status, Reason: status.Reason, Message: status.Message}
		c.Settle(w.Resource.Conditions, e.Clock.Now())
		body["status"] = map[string]any{"conditions": []any{c.Fields()}}
	}
	raw, err := applybody.Marshal(body)
	if err != nil {
		return err
	}
	force := true
	_, err = e.Client.Resource(ResourceOf(w.Target.Resource)).Patch(ctx, "cluster", types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: conditionManager, Force: &force}, "status")
	if err != nil {
		return fmt.Errorf("write the condition %s of %s/cluster: %w", ConditionType, w.Target.Resource, err)
	}
	if status != nil && (!had || was.Status != status.Status || was.Reason != status.Reason) {
		e.Event(w.Target.Name, status.Reason, status.Message)
	}
	return nil
}
