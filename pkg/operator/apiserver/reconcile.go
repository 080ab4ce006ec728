package apiserver

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

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/source"
)

// Outcome is the result of a reconciliation. Every outcome is reported.
type Outcome struct {
	Status Status
	// NoCondition means that the target's condition is not to have the status.
	NoCondition bool
	// Recorded is what was last recorded of the target; without a version, what is known of
	// it without a record.
	Recorded Recorded
	// Expires and RenewAt are when the token in the Secret expires, and is renewed at the latest;
	// zero: there is none, or it is not known.
	Expires, RenewAt time.Time
	// Requeue is how soon to sync again; zero: when something changes.
	Requeue time.Duration
	// Err is why it did not come to its end.
	Err error
}

const (
	// requestTimeout bounds the requests for one object, so that one that hangs, as in an
	// admission webhook, delays the others for no longer.
	requestTimeout = 10 * time.Second
	// tokenRetry is when to try again what a token failed of.
	tokenRetry = 5 * time.Second
	// copiedTimeout bounds the writes of what no pod needs.
	copiedTimeout = 2 * requestTimeout
)

// reconciliation brings one plan about.
type reconciliation struct {
	*Controller
	snapshot *Observed
	plan     *Desired
	state    State
	anchor   *unstructured.Unstructured // as it was last applied; nil: not yet
	problems []Status
	outcome  *Outcome
	// errs are of single objects. The work on all others is done, unless the API server is
	// unreachable.
	errs        []error
	unreachable bool
	// touched means that an object in the target's namespace exists; inTarget, that one of
	// those that State.InTarget is about does.
	touched, inTarget bool
}

// reconcile brings a plan about, in order. An object that fails stops the work on no other.
func (c *Controller) reconcile(ctx context.Context, s *Observed, plan *Desired) *Outcome {
	o := &Outcome{Status: plan.Status}
	x := &reconciliation{Controller: c, snapshot: s, plan: plan, state: plan.State, outcome: o}
	if !plan.Requeue.IsZero() {
		x.requeue(max(time.Second, plan.Requeue.Sub(s.Now)))
	}
	x.run(ctx)
	if o.Recorded.Version == "" {
		o.Recorded.State = x.state
	}
	o.Err = errors.Join(x.errs...)
	for _, err := range x.errs {
		x.problems = append(x.problems, problemOf(err))
	}
	if len(x.problems) > 0 {
		if o.Status.Reason.NeedsAction() {
			x.problems = append(x.problems, o.Status)
		}
		o.Status = worst(x.problems)
	}
	return o
}

// try makes the requests for one object. Its error stops the work on no other object.
func (x *reconciliation) try(ctx context.Context, do func(context.Context) error) (done bool) {
	if x.unreachable {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := do(ctx)
	if err != nil {
		x.errs = append(x.errs, err)
		x.unreachable = unreachable(err)
	}
	return err == nil
}

// problemOf is the problem that an error is.
func problemOf(err error) Status {
	switch {
	case apierrors.IsForbidden(err):
		return Status{contract.Forbidden,
			err.Error() + "; apply the manifests with the components that the mode needs, see docs/operate/install.md"}
	case apierrors.IsInvalid(err): // for example by a LimitRange or an admission webhook
		return Status{contract.Refused, err.Error()}
	default:
		return Status{contract.RequestFailed, err.Error()}
	}
}

func (x *reconciliation) requeue(after time.Duration) {
	if after > 0 && (x.outcome.Requeue == 0 || after < x.outcome.Requeue) {
		x.outcome.Requeue = after
	}
}

func (x *reconciliation) event(reason, message string) {
	x.Event(x.snapshot.Target.Name, corev1.EventTypeNormal, reason, message)
}

func (x *reconciliation) run(ctx context.Context) {
	forbidden := func() bool { return slices.ContainsFunc(x.errs, apierrors.IsForbidden) }
	// What is not recorded is not created: a removal would not find it.
	recorded := x.record(ctx)
	x.outcome.NoCondition = x.plan.Off && x.plan.Status.Delivered() || x.snapshot.Unrecorded && !recorded && !forbidden()
	if recorded {
		x.apply(ctx, x.plan.Apply, contract.EventApplied)
	}
	if x.plan.Token && (recorded || x.snapshot.State.Token) {
		x.token(ctx)
	}
	if recorded {
		x.apply(ctx, x.plan.Workloads, contract.EventApplied)
		x.try(ctx, x.inject)
	}
	x.remove(ctx)
	if forbidden() {
		// Objects it was not allowed to create need no removal. What it applied before does.
		if !x.touched {
			x.state.Untouched = x.snapshot.State.Untouched
		}
		if !x.inTarget {
			x.state.InTarget, x.state.Token = x.snapshot.State.InTarget, x.snapshot.State.Token
		}
	}
	if recorded && x.record(ctx) {
		ctx, cancel := context.WithTimeout(ctx, copiedTimeout)
		defer cancel()
		x.apply(ctx, x.plan.Copied, contract.EventApplied)
	}
}

func (x *reconciliation) apply(ctx context.Context, objects []*unstructured.Unstructured, event string) {
	for _, o := range objects {
		live := x.snapshot.find(o)
		if live != nil && slices.Contains(x.plan.Delete, live) {
			continue // it ended, and is made again once it is gone
		}
		x.try(ctx, func(ctx context.Context) error { return x.applyOne(ctx, o, live, event) })
	}
}

func (x *reconciliation) applyOne(ctx context.Context, o, live *unstructured.Unstructured, event string) error {
	changed, _, err := x.applier.Apply(ctx, o, live)
	switch {
	case apierrors.IsNotFound(err) && o.GetKind() == contract.KMSHealths.Kind:
		return fmt.Errorf("%w: the CRD %s.%s is not installed; it is in manifests/kubernetes",
			err, contract.KMSHealths.Plural, contract.KMSHealths.Group)
	case o.GetUID() != "" && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
		return nil // a change of one that is gone, or has changed since: the watch will show it
	case err != nil:
		return err
	}
	if o.GetNamespace() == x.snapshot.Target.Namespace {
		x.touched, x.inTarget = true, x.inTarget || o.GetKind() != "Role"
	}
	if changed {
		x.event(event, Key(o))
	}
	return nil
}

// token creates or renews the Secret with the reporters' token. A failure is reported while the
// token still works, too.
func (x *reconciliation) token(ctx context.Context) {
	x.try(ctx, func(ctx context.Context) error {
		v, err := x.ensureToken(ctx, x.state.Namespace, x.snapshot.Target.Name)
		x.outcome.Expires, x.outcome.RenewAt = v.notAfter, v.renewAt
		if err == nil {
			return nil
		}
		problem := problemOf(err)
		if problem.Reason != contract.Forbidden {
			problem.Reason = contract.RenewalFailed
		}
		x.problems = append(x.problems, problem)
		x.requeue(tokenRetry)
		return nil
	})
}

// inject adds the reporter to a Deployment, or removes it.
func (x *reconciliation) inject(ctx context.Context) error {
	switch d := x.snapshot.Deployment; {
	case x.plan.Eject:
		bare := bareDeployment(d)
		changed, result, err := x.applier.Apply(ctx, bare, nil)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
		if changed && result.GetResourceVersion() != d.ResourceVersion {
			x.event(contract.EventEjected, Key(bare))
		}
		x.state.notInjected()
	case x.plan.Inject != nil:
		live := bareDeployment(d)
		live.SetGeneration(d.Generation)
		live.SetResourceVersion(d.ResourceVersion)
		changed, result, err := x.applier.Apply(ctx, x.plan.Inject, live)
		if err != nil || result == nil {
			return err
		}
		into := source.As[appsv1.Deployment](result)
		if into == nil {
			return fmt.Errorf("%s cannot be read", Key(result))
		}
		if changed {
			x.event(contract.EventInjected, Key(result))
		}
		x.state.Injected = &Injected{Deployment: into.Name, UID: string(into.UID), Generation: into.Generation}
	}
	return nil
}

// remove deletes what the plan deletes, but for what a pod still mounts. ConfigMaps come
// last: where they are encrypted, each may take as long as an unhealthy plugin.
func (x *reconciliation) remove(ctx context.Context) {
	inUse := x.inUse(ctx)
	all, rank := slices.Clone(x.plan.Delete), map[string]int{"ConfigMap": 1}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return rank[a.GetKind()] - rank[b.GetKind()] })
	for _, o := range all {
		if o.GetKind() == "ConfigMap" && inUse(o.GetNamespace(), o.GetName()) {
			x.requeue(time.Second)
			continue
		}
		x.try(ctx, func(ctx context.Context) error {
			deleted, err := x.applier.Delete(ctx, o)
			if deleted {
				x.event(contract.EventDeleted, Key(o))
			}
			return err
		})
	}
	namespace, name := x.state.Namespace, objects.TokenName(x.snapshot.Target.Name)
	if !x.plan.DeleteToken {
		return
	}
	x.requeue(time.Second) // Secrets are not watched
	if inUse(namespace, name) {
		return
	}
	x.try(ctx, func(ctx context.Context) error {
		err := x.Kube.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		// Of one that is assumed: without the right to delete it, none was created.
		assumed := x.snapshot.State.Namespace == "" && apierrors.IsForbidden(err)
		if err != nil && !apierrors.IsNotFound(err) && !assumed {
			return fmt.Errorf("delete Secret %s/%s: %w", namespace, name, err)
		}
		if err == nil {
			x.event(contract.EventDeleted, "Secret "+namespace+"/"+name)
		}
		x.state.Token = false
		return nil
	})
}

// inUse reports which ConfigMaps and Secrets to delete a pod of the target mounts. The owner may
// create pods at any time, and one whose ConfigMap was deleted never starts: so this lists
// from the API server, which also has those that the watch has not delivered yet. All are in
// use while they cannot be listed.
func (x *reconciliation) inUse(ctx context.Context) func(namespace, name string) bool {
	t := x.snapshot.Target
	here := slices.ContainsFunc(x.plan.Delete, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ConfigMap" && o.GetNamespace() == t.Namespace
	})
	if x.snapshot.Deleting || x.snapshot.NamespaceMissing || !here && !x.plan.DeleteToken {
		return func(string, string) bool { return false }
	}
	var specs []*corev1.PodSpec
	listed := x.try(ctx, func(ctx context.Context) error {
		selected := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(t.PodSelector).String()}
		list, err := x.Client.Resource(source.Pods).Namespace(t.Namespace).List(ctx, selected)
		if err != nil {
			return fmt.Errorf("list the pods of namespace %s: %w", t.Namespace, err)
		}
		for i := range list.Items {
			pod := source.As[corev1.Pod](&list.Items[i])
			if pod == nil {
				return fmt.Errorf("pod %s/%s cannot be read", t.Namespace, list.Items[i].GetName())
			}
			specs = append(specs, &pod.Spec)
		}
		return nil
	})
	return func(namespace, name string) bool {
		return namespace == t.Namespace &&
			(!listed || slices.ContainsFunc(specs, func(s *corev1.PodSpec) bool { return mounts(s, name) }))
	}
}

// record keeps the state in the target's ClusterRole, and reports whether it is there.
func (x *reconciliation) record(ctx context.Context) bool {
	if x.plan.Anchor == nil {
		return true
	}
	anchor := x.plan.Anchor.DeepCopy()
	anchor.SetAnnotations(map[string]string{contract.StateAnnotation: x.state.String()})
	live := cmp.Or(x.anchor, x.snapshot.find(anchor))
	return x.try(ctx, func(ctx context.Context) error {
		changed, result, err := x.applier.Apply(ctx, anchor, live)
		if err != nil || result == nil {
			return err
		}
		x.anchor, x.outcome.Recorded = result, Recorded{Version: result.GetResourceVersion(), State: x.state}
		if changed && live != nil && !reflect.DeepEqual(live.Object["rules"], anchor.Object["rules"]) {
			x.event(contract.EventApplied, Key(anchor)+": other rules")
		}
		return nil
	})
}
