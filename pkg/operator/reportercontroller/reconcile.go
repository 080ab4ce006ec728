package reportercontroller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/ssa"
)

// Result is the result of a reconciliation. Every outcome is reported.
type Result struct {
	Status delivery.Status
	// NoCondition means that the target's condition must not have the status.
	NoCondition bool
	// Recorded is the state of the target, with the version of its record if that was written.
	Recorded Recorded
	// Token has the times of the token in the Secret, if they are known.
	Token validity
	// Err has the errors of all objects that failed.
	Err error
}

// reconciliation carries out one plan.
type reconciliation struct {
	*Controller
	Result
	snapshot *Snapshot
	plan     *Plan
	state    *delivery.State            // to record
	anchor   *unstructured.Unstructured // as it was last applied; nil: not yet
	// errs are the errors of single objects. The others are written all the same, unless the API server is unreachable.
	errs        []error
	unreachable bool
	// made has the kinds of the objects that were applied in the target's namespace.
	made sets.Set[string]
}

// reconcile carries out a plan, in order. An object that fails does not stop the others.
func (c *Controller) reconcile(ctx context.Context, s *Snapshot, plan *Plan) *Result {
	x := &reconciliation{Controller: c, snapshot: s, plan: plan, made: sets.New[string]()}
	x.Status, x.Recorded.State, x.state = plan.Status, plan.State, &x.Recorded.State
	// What is not recorded is not created: a removal would not find it.
	recorded := x.record(ctx)
	if recorded {
		x.apply(ctx)
	}
	if plan.Token && (recorded || s.mounted(objects.TokenName(s.Target.Name))) {
		x.try(ctx, func(ctx context.Context) (err error) {
			x.Token, err = x.ensureToken(ctx, x.state.Namespace, s.Target.Name)
			return err
		})
	}
	if recorded {
		x.try(ctx, x.inject)
	}
	x.remove(ctx)
	if slices.ContainsFunc(x.errs, denied) {
		// Objects that the operator may not create need no removal. Objects applied earlier do.
		x.state.Role = s.State.Role || x.state.Role && x.made.Has("Role")
		if len(x.made.Clone().Delete("Role")) == 0 {
			x.state.InTarget = s.State.InTarget
		}
	}
	if recorded {
		x.record(ctx)
	}
	x.Err = errors.Join(x.errs...)
	x.NoCondition = plan.Off && plan.Status.Delivered() || s.Unrecorded && x.Err == nil
	if len(x.errs) > 0 {
		problems := plan.Status.IfNeedsAction()
		for _, err := range x.errs {
			problems = append(problems, problemOf(err))
		}
		x.Status = delivery.Worst(problems)
	}
	return &x.Result
}

// try sends the requests for one object. Its error does not stop the others.
func (x *reconciliation) try(ctx context.Context, do func(context.Context) error) (done bool) {
	if x.unreachable {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, ssa.RequestTimeout)
	defer cancel()
	err := do(ctx)
	if err != nil {
		x.errs = append(x.errs, err)
		x.unreachable = unreachable(err)
	}
	return err == nil
}

// problemOf converts an error to a problem.
func problemOf(err error) delivery.Status {
	problem := delivery.Status{Reason: contract.RequestFailed, Message: err.Error()}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		problem.Reason = contract.NamespaceMissing
	case denied(err):
		problem.Reason = contract.Forbidden
	case apierrors.IsInvalid(err): // for example by a LimitRange's defaults
		problem.Reason = contract.Refused
	}
	return problem
}

// denied reports whether a right is missing, or admission denied a request. A webhook's denial has the code 400 and
// no reason, unless the webhook sets them (k8s.io/apiserver, pkg/admission/plugin/webhook/errors). If the webhook
// does not support a dry run, the reason is BadRequest.
func denied(err error) bool {
	answer := apierrors.APIStatus(nil)
	return apierrors.IsForbidden(err) || errors.As(err, &answer) &&
		answer.Status().Code == http.StatusBadRequest && answer.Status().Reason == metav1.StatusReasonUnknown
}

func (x *reconciliation) event(reason, message string) {
	x.Event(x.snapshot.Target.Name, corev1.EventTypeNormal, reason, message)
}

// record writes the state to the target's ClusterRole, and reports whether it is there.
func (x *reconciliation) record(ctx context.Context) bool {
	if x.plan.Anchor == nil {
		return true
	}
	anchor := x.plan.Anchor.DeepCopy()
	anchor.SetAnnotations(map[string]string{contract.StateAnnotation: x.state.String()})
	return x.try(ctx, func(ctx context.Context) error {
		_, result, err := x.applier.Apply(ctx, anchor, cmp.Or(x.anchor, x.snapshot.find(anchor)))
		if err == nil && result != nil {
			x.anchor, x.Recorded.Version = result, result.GetResourceVersion()
		}
		return err
	})
}

func (x *reconciliation) apply(ctx context.Context) {
	for _, o := range x.plan.Apply {
		live := x.snapshot.find(o)
		if live != nil && slices.Contains(x.plan.Delete, live) {
			continue // the pod has ended: it is created again after it is deleted
		}
		if !x.try(ctx, func(ctx context.Context) error { return x.admitted(ctx, o, live) }) {
			continue
		}
		x.try(ctx, func(ctx context.Context) error { // with a time limit of its own: a webhook may hang
			changed, _, err := x.applier.Apply(ctx, o, live)
			switch {
			case o.GetUID() != "" && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)):
				return nil // the pod was deleted meanwhile
			case err != nil:
				return err
			}
			if o.GetNamespace() == x.snapshot.Target.Namespace {
				x.made.Insert(o.GetKind())
			}
			if changed {
				x.event(contract.EventApplied, ssa.Describe(o))
			}
			return nil
		})
	}
}

// admitted returns why admission denies the pods of a DaemonSet whose template changes, by a dry run. Without it, a
// rollout would not progress, and only Events would show the denial. Any other answer, as of a webhook that does not
// support dry runs, is ignored. If admission has changed the live template, the dry run also happens without a
// rollout.
func (x *reconciliation) admitted(ctx context.Context, o, live *unstructured.Unstructured) error {
	if o.GetKind() != "DaemonSet" || x.applier.Applied(o, live) {
		return nil
	}
	template := informers.As[appsv1.DaemonSet](o).Spec.Template
	if live != nil &&
		equality.Semantic.DeepDerivative(template.Spec, informers.As[appsv1.DaemonSet](live).Spec.Template.Spec) {
		return nil
	}
	content, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	pod := &unstructured.Unstructured{Object: content}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.SetGenerateName(o.GetName() + "-")
	// A policy may deny pods without a controller.
	pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(),
		UID: uuid.NewUUID(), Controller: new(true)}})
	_, err := x.Client.Resource(informers.Pods).Namespace(o.GetNamespace()).Create(ctx, pod,
		metav1.CreateOptions{FieldManager: contract.OperatorName, DryRun: []string{metav1.DryRunAll}})
	if denied(err) || apierrors.IsInvalid(err) {
		return fmt.Errorf("create a pod of %s, as a dry run: %w", ssa.Describe(o), err)
	}
	return nil
}

// inject adds the reporter to a Deployment, or removes it.
func (x *reconciliation) inject(ctx context.Context) error {
	switch d := x.snapshot.Deployment; {
	case x.plan.Eject:
		bare := bareDeployment(d)
		changed, result, err := x.applier.Apply(ctx, bare, nil)
		// The injection is only recorded. Without the right to patch the Deployment, the operator did not make it.
		assumed := apierrors.IsForbidden(err) && !objects.Injected(&d.Spec.Template.Spec)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !assumed {
			return err
		}
		if changed && result.GetResourceVersion() != d.ResourceVersion {
			x.event(contract.EventEjected, ssa.Describe(bare))
		}
		x.state.NotInjected()
	case x.plan.Inject != nil:
		live := bareDeployment(d)
		live.SetGeneration(d.Generation)
		live.SetResourceVersion(d.ResourceVersion)
		changed, result, err := x.applier.Apply(ctx, x.plan.Inject, live)
		if err != nil || result == nil {
			return err
		}
		if changed {
			x.event(contract.EventInjected, ssa.Describe(result))
		}
		x.state.Injected = &delivery.Injected{Deployment: result.GetName(), UID: string(result.GetUID()),
			Generation: result.GetGeneration()}
	}
	return nil
}

// remove deletes the objects in the plan's Delete. ConfigMaps come last: if they are encrypted, deleting each may take
// as long as an unhealthy plugin does.
func (x *reconciliation) remove(ctx context.Context) {
	all, rank := slices.Clone(x.plan.Delete), map[string]int{"ConfigMap": 1}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return rank[a.GetKind()] - rank[b.GetKind()] })
	for _, o := range all {
		x.try(ctx, func(ctx context.Context) error {
			deleted, err := x.applier.Delete(ctx, o)
			if deleted {
				x.event(contract.EventDeleted, ssa.Describe(o))
			}
			return err
		})
	}
}
