package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operator/source"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// Executor executes plans. It may be used for several targets at a time.
type Executor struct {
	Client      dynamic.Interface
	Applier     *apply.Applier
	Credentials *credentials.Manager
	Approve     bool // may approve the operator's own certificate requests
	Clock       clock.PassiveClock
	// Event records a change. reason is in UpperCamelCase.
	Event func(target, eventType, reason, message string)
}

// Outcome is the result of executing a plan. Every outcome is reported.
type Outcome struct {
	Status Status
	// NoCondition means that the condition is not written.
	NoCondition bool
	// Recorded is what was last recorded of the target.
	Recorded Recorded
	// Expiries and Renewals are when credentials expire, and are renewed at the latest, by
	// the name of their Secret.
	Expiries, Renewals map[string]time.Time
	// Requeue is how soon to sync again; zero: when something changes.
	Requeue time.Duration
	// Err is why the plan could not be executed to its end.
	Err error
}

// execution is of one plan.
type execution struct {
	*Executor
	snapshot *Snapshot
	plan     *Plan
	state    State
	anchor   *unstructured.Unstructured // as it was last applied; nil: not yet
	problems []Problem
	late     error // of steps that stop no other
	outcome  *Outcome
	// touched means that an object in the target's namespace exists; inTarget, that one of
	// those that State.InTarget is about does.
	touched, inTarget bool
}

// Execute executes a plan, in order, up to the first error.
func (e *Executor) Execute(ctx context.Context, s *Snapshot, plan *Plan) *Outcome {
	x := &execution{Executor: e, snapshot: s, plan: plan, state: plan.State, outcome: &Outcome{
		Status: plan.Status, Expiries: map[string]time.Time{}, Renewals: map[string]time.Time{},
	}}
	if !plan.Requeue.IsZero() {
		x.requeue(max(time.Second, plan.Requeue.Sub(s.Now)))
	}
	err := x.run(ctx)
	if apierrors.IsForbidden(err) {
		// Objects it was not allowed to create need no removal. What it applied before does.
		if !x.touched {
			x.state.Untouched = s.State.Untouched
		}
		if !x.inTarget {
			x.state.InTarget, x.state.Secrets = s.State.InTarget, s.State.Secrets
		}
		_ = x.record(ctx)
	}
	o := x.outcome
	o.Err = err
	if err != nil {
		x.problems = append(x.problems, problemOf(err))
	}
	if len(x.problems) > 0 {
		if o.Status.Reason.NeedsAction() {
			x.problems = append(x.problems, Problem(o.Status))
		}
		o.Status = worst(x.problems)
	}
	return o
}

// problemOf is the Problem of an error.
func problemOf(err error) Problem {
	switch {
	case apierrors.IsForbidden(err):
		return Problem{Forbidden, err.Error() + "; apply the manifests with the components that the delivery needs, see docs/operate/install.md"}
	case apierrors.IsInvalid(err): // for example by a LimitRange or an admission webhook
		return Problem{Refused, err.Error()}
	default:
		return Problem{RequestFailed, err.Error()}
	}
}

func (x *execution) requeue(after time.Duration) {
	if after > 0 && (x.outcome.Requeue == 0 || after < x.outcome.Requeue) {
		x.outcome.Requeue = after
	}
}

func (x *execution) event(reason, message string) {
	x.Event(x.snapshot.Target.Name, corev1.EventTypeNormal, reason, message)
}

func (x *execution) run(ctx context.Context) error {
	steps := []func(context.Context) error{
		x.record,
		func(ctx context.Context) error { return x.apply(ctx, x.plan.Apply) },
		x.credentials,
		func(ctx context.Context) error { return x.apply(ctx, x.plan.Workloads) },
		x.liveFiles,
		x.inject,
		x.renewCA,
		x.remove,
		x.record,
		x.copied,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, x.late)
		}
	}
	return x.late
}

func (x *execution) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		live := x.snapshot.find(o)
		if live != nil && slices.Contains(x.plan.Delete, live) {
			continue // it ended, and is made again once it is gone
		}
		result, _, err := x.Applier.Apply(ctx, o, live)
		if apierrors.IsNotFound(err) && o.GetKind() == operatorcr.KMSHealths.Kind {
			return fmt.Errorf("%w: the CRD %s.%s is not installed; it is in manifests/kubernetes", err, operatorcr.KMSHealths.Plural, operatorcr.KMSHealths.Group)
		}
		if err != nil {
			return err
		}
		if o.GetNamespace() == x.snapshot.Target.Namespace {
			x.touched, x.inTarget = true, x.inTarget || o.GetKind() != "Role"
		}
		switch result {
		case apply.Applied:
			x.event("Applied", apply.Key(o))
		case apply.Lagging:
			x.requeue(time.Second)
		}
	}
	return nil
}

// liveFiles gives pods of a DaemonSet the current version of their files.
func (x *execution) liveFiles(ctx context.Context) error {
	for _, o := range x.plan.LiveFiles {
		x.patch(ctx, o, "update the files")
	}
	return nil
}

// renewCA replaces the CA in objects that are otherwise not changed.
func (x *execution) renewCA(ctx context.Context) error {
	for _, o := range x.plan.RenewCA {
		if x.patch(ctx, o, "replace the CA") {
			x.event("CARenewed", apply.Key(o))
		}
	}
	return nil
}

// patch merges a part of an object into it, and reports whether it did. Of one that is gone
// or has changed since, the watch will deliver that. An error, as while its plugin is
// unhealthy, stops nothing else.
func (x *execution) patch(ctx context.Context, part *unstructured.Unstructured, what string) bool {
	raw, err := applybody.Marshal(part.Object)
	if err == nil {
		_, err = x.Client.Resource(apply.ResourceOf(part)).Namespace(part.GetNamespace()).
			Patch(ctx, part.GetName(), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: manifests.Manager})
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		x.late = errors.Join(x.late, fmt.Errorf("%s of %s: %w", what, apply.Key(part), err))
	}
	return err == nil
}

// copied applies the ConfigMaps whose content the pods have already. While their plugin is
// unhealthy this fails, which must stop nothing else.
func (x *execution) copied(ctx context.Context) error {
	x.late = errors.Join(x.late, x.apply(ctx, x.plan.Copied))
	return nil
}

func (x *execution) credentials(ctx context.Context) error {
	name := x.snapshot.Target.Name
	for _, c := range x.plan.Credentials {
		result := x.Credentials.Ensure(ctx, credentials.Request{
			Kind: c.Kind, Namespace: c.Namespace, Secret: c.Name,
			ServiceAccount: manifests.Name(name), Approve: x.Approve,
			Labels: map[string]string{manifests.ManagedBy: manifests.Manager, manifests.TargetLabel: name, "app.kubernetes.io/name": "kms-health-reporter"},
		})
		x.reportCredentials(c, &result)
	}
	return nil
}

// inject adds the reporter to a Deployment, or removes it.
func (x *execution) inject(ctx context.Context) error {
	switch {
	case x.plan.Eject:
		d := x.snapshot.Deployment
		bare := bareDeployment(d)
		outcome, result, err := x.Applier.Apply(ctx, bare, nil)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
		if outcome == apply.Applied && result.GetResourceVersion() != d.ResourceVersion {
			x.event("Ejected", apply.Key(bare))
		}
		x.state.notInjected()
	case x.plan.Inject != nil:
		content, err := plain(x.snapshot.Deployment)
		if err != nil {
			return err
		}
		live := &unstructured.Unstructured{Object: content}
		outcome, result, err := x.Applier.Apply(ctx, x.plan.Inject.Object, live)
		if err == nil && outcome == apply.Unchanged && result == nil && x.state.Injected == nil {
			result = live // it was injected before, but not recorded
		}
		if err != nil || outcome == apply.Lagging || result == nil {
			return err
		}
		into := source.As[appsv1.Deployment](result)
		if into == nil {
			return fmt.Errorf("%s cannot be read", apply.Key(result))
		}
		if outcome == apply.Applied {
			x.event("Injected", apply.Key(result))
		}
		x.state.Injected = &Injected{Deployment: into.Name, UID: string(into.UID), Generation: into.Generation, Seen: injectionSeen(into), Sent: x.state.Intended}
	}
	return nil
}

// remove deletes what the plan deletes, but for what a pod still mounts. ConfigMaps come
// last, and one that cannot be deleted, since its plugin is unhealthy, stops nothing else.
func (x *execution) remove(ctx context.Context) error {
	inUse, err := x.inUse(ctx)
	if err != nil {
		return err
	}
	var failed error
	objects := slices.Clone(x.plan.Delete)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return late(a) - late(b) })
	for _, o := range objects {
		if inUse(o.GetKind(), o.GetNamespace(), o.GetName()) {
			x.requeue(time.Second)
			continue
		}
		deleted, err := x.Applier.Delete(ctx, o)
		if o.GetKind() == "ConfigMap" {
			x.late = errors.Join(x.late, err)
		} else {
			failed = errors.Join(failed, err)
		}
		if deleted {
			x.event("Deleted", apply.Key(o))
		}
	}
	namespace := x.state.Namespace
	for _, name := range x.plan.DeleteSecrets {
		if inUse("Secret", namespace, name) {
			x.requeue(time.Second)
			continue
		}
		certificate := name == manifests.CredentialsName(x.snapshot.Target.Name, v1alpha1.CredentialsClientCertificate)
		deleted, err := x.Credentials.Forget(ctx, namespace, name, certificate)
		if err != nil {
			return errors.Join(failed, err)
		}
		if deleted {
			x.event("Deleted", "Secret "+namespace+"/"+name)
		}
		x.state.Secrets = slices.DeleteFunc(slices.Clone(x.state.Secrets), func(s string) bool { return s == name })
		x.requeue(time.Second) // Secrets are not watched
	}
	return failed
}

// late is when in a removal an object is deleted.
func late(o *unstructured.Unstructured) int {
	if o.GetKind() == "ConfigMap" {
		return 1
	}
	return 0
}

// inUse reports which of the objects to delete a pod of the target mounts. The owner may
// create pods at any time, and one whose ConfigMap was deleted never starts: so this lists
// from the API server, which also has those that the watch has not delivered yet.
func (x *execution) inUse(ctx context.Context) (func(kind, namespace, name string) bool, error) {
	t := x.snapshot.Target
	here := slices.ContainsFunc(x.plan.Delete, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ConfigMap" && o.GetNamespace() == t.Namespace
	})
	if x.snapshot.Deleting || x.snapshot.NamespaceMissing || !here && len(x.plan.DeleteSecrets) == 0 {
		return func(string, string, string) bool { return false }, nil
	}
	list, err := x.Client.Resource(source.Pods).Namespace(t.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(t.PodSelector).String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", t.Namespace, err)
	}
	var specs []*corev1.PodSpec
	for i := range list.Items {
		pod := source.As[corev1.Pod](&list.Items[i])
		if pod == nil {
			return nil, fmt.Errorf("pod %s/%s cannot be read", t.Namespace, list.Items[i].GetName())
		}
		specs = append(specs, &pod.Spec)
	}
	return func(kind, namespace, name string) bool {
		return (kind == "ConfigMap" || kind == "Secret") && namespace == t.Namespace &&
			slices.ContainsFunc(specs, func(s *corev1.PodSpec) bool { return mounts(s, name) })
	}, nil
}

// Record records a target in its ClusterRole, before anything else of it is made.
func (e *Executor) Record(ctx context.Context, s *Snapshot) (Recorded, error) {
	p := &planner{Snapshot: s, plan: &Plan{}}
	if _, err := p.identity(); err != nil {
		return Recorded{}, err
	}
	x := &execution{Executor: e, snapshot: s, plan: p.plan, state: s.identified(), outcome: &Outcome{}}
	x.state.Untouched = s.State.Namespace == "" // it is the first record
	err := x.record(ctx)
	return x.outcome.Recorded, err
}

// CreateDestination creates the object for the reports, if it is one of the operator's.
func (e *Executor) CreateDestination(ctx context.Context, s *Snapshot) error {
	destination, err := s.Destination()
	if err != nil || destination == nil {
		return err
	}
	_, _, err = e.Applier.Apply(ctx, destination, nil)
	return err
}

// record keeps the state in the target's ClusterRole.
func (x *execution) record(ctx context.Context) error {
	if x.plan.Anchor == nil {
		return nil
	}
	anchor := x.plan.Anchor.DeepCopy()
	annotations := anchor.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[manifests.StateAnnotation] = x.state.String()
	anchor.SetAnnotations(annotations)
	live := cmp.Or(x.anchor, x.snapshot.find(anchor))
	outcome, result, err := x.Applier.Apply(ctx, anchor, live)
	if err != nil || result == nil {
		return err
	}
	x.anchor, x.outcome.Recorded = result, Recorded{Version: result.GetResourceVersion(), State: x.state}
	if outcome == apply.Applied && live != nil && !reflect.DeepEqual(live.Object["rules"], anchor.Object["rules"]) {
		x.event("Applied", apply.Key(anchor)+": other rules")
	}
	return nil
}
