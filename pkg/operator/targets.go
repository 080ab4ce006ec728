package operator

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/target"
)

// aTarget is a target of the configuration, or one that has left it.
type aTarget struct {
	v1alpha1.Target
	state target.State
	going bool
}

// targets are those of the configuration, those that were in an earlier one, and
// those whose ClusterRole shows that something of them is left.
func (o *Operator) targets(c *cluster, config *v1alpha1.OperatorConfiguration) []aTarget {
	states := map[string]target.State{}
	for _, role := range c.roles.All() {
		state, err := target.ParseState(role.GetAnnotations()[render.StateAnnotation])
		if err != nil {
			klog.ErrorS(err, "The state of a target is lost, and found anew", "clusterRole", role.GetName())
		}
		states[role.GetLabels()[render.TargetLabel]] = state
	}
	var all []aTarget
	for _, t := range config.Targets {
		all = append(all, aTarget{Target: t, state: states[t.Name], going: config.ManagementState == v1alpha1.Removed})
		delete(states, t.Name)
		o.known[t.Name] = t
	}
	for name, t := range o.known {
		state, has := states[name]
		switch {
		case has && state.Namespace != "" || slices.ContainsFunc(config.Targets, func(c v1alpha1.Target) bool { return c.Name == name }):
			continue
		default:
			delete(states, name)
			all = append(all, aTarget{Target: t, going: true})
		}
	}
	for name, state := range states {
		if state.Namespace == "" {
			continue // somebody else's, or not yet remembered
		}
		all = append(all, aTarget{going: true, state: state, Target: v1alpha1.Target{
			Name: name, Namespace: state.Namespace, Resource: state.Resource, PodSelector: state.PodSelector,
			Container: state.Container, Delivery: state.Delivery, Credentials: state.Credentials,
		}})
	}
	slices.SortFunc(all, func(a, b aTarget) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// job is a target, what there is of it, and what is to be done: nil where that is
// not known yet.
type job struct {
	aTarget
	world *target.World
	plan  *target.Plan
	held  bool // it was tried a moment ago, and failed
}

func (o *Operator) plan(watches context.Context, c *cluster, config *v1alpha1.OperatorConfiguration, t aTarget) *job {
	j := &job{aTarget: t}
	w, ok := o.observe(watches, c, &t.Target, config, t.state, t.going)
	if !ok {
		return j
	}
	if until, waiting := o.retries.Waiting(t.Name); waiting {
		o.lookAgain(until.Sub(o.Clock.Now()))
		j.held = true
	}
	w.Mute = t.going && slices.ContainsFunc(config.Targets, func(c v1alpha1.Target) bool { return c.Resource == t.Resource && c.Name != t.Name })
	verdict, judged := o.rollups.Verdict(t.Name)
	w.ReportsLeft = !judged || !verdict.Done
	plan, err := target.Make(w)
	if err != nil {
		o.failed(t.Name, err)
		return j
	}
	j.world, j.plan = w, plan
	return j
}

// do makes one target what it should be.
func (o *Operator) do(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	again, err := o.executor.Do(ctx, j.world, j.plan)
	if again > 0 {
		o.lookAgain(again)
	}
	if err == nil && !j.plan.Gone {
		err = o.executor.Tell(ctx, j.world, &j.plan.Status)
	}
	if err != nil {
		if apierrors.IsForbidden(err) {
			_ = o.executor.Tell(ctx, j.world, &target.Status{Status: "False", Reason: "Forbidden", Message: err.Error() +
				"; were the manifests applied, with the components that the delivery needs? See docs/install.md"})
		}
		if apierrors.IsInvalid(err) {
			// By a LimitRange or an admission webhook, say: nobody but an administrator can
			// do something about it.
			_ = o.executor.Tell(ctx, j.world, &target.Status{Status: "False", Reason: "Refused", Message: err.Error()})
		}
		o.failed(j.Name, err)
		return
	}
	if o.retries.Done(j.Name) {
		klog.InfoS("Works again", "target", j.Name)
	}
	o.metrics.observe(j.Name, string(j.plan.State.Delivery), j.plan.Status)
	o.delivered(j.Name, j.plan.Status)
}

// failed asks for another pass, later each time, and logs what is new.
func (o *Operator) failed(name string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	o.metrics.errors.WithLabelValues(name).Inc()
	until, news := o.retries.Failed(name, err)
	if news {
		klog.ErrorS(err, "Could not be done, and is tried again", "target", name)
	}
	o.lookAgain(until.Sub(o.Clock.Now()))
}
