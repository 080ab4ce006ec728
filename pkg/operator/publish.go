package operator

import (
	"maps"
	"slices"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/clusteroperator"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/rollupcontroller"
	"github.com/kms-health/kms-health/pkg/operator/target"
)

// publish tells the roll-up which targets there are, and what the pass knows of
// their plugins; of a target that it knows nothing of, what an earlier one knew.
func (o *Operator) publish(c *cluster, config *v1alpha1.OperatorConfiguration, jobs []*job) {
	tool := "oc"
	if c.known && !c.openShift {
		tool = "kubectl"
	}
	var optional []string
	for _, r := range config.Rollups {
		if r != v1alpha1.RollupDegraded {
			optional = append(optional, "KMSPlugins"+string(r))
		}
	}
	targets := make([]rollupcontroller.Target, 0, len(jobs))
	for _, j := range jobs {
		t := rollupcontroller.Target{State: j.state, Known: j.state.Live != nil}
		if at := slices.IndexFunc(o.published, func(p rollupcontroller.Target) bool { return p.Name == j.Name }); at >= 0 {
			t = o.published[at]
		}
		if j.plan != nil {
			t.State, t.Known, t.Pending = j.plan.State, j.plan.Known, j.plan.Pending
			t.Off, t.Clean, t.Mute, t.NamespaceMissing = j.plan.Off, j.plan.Clean, j.world.Mute, j.world.NamespaceMissing
		}
		t.Target, t.Tool, t.Optional = j.Target, tool, optional
		t.Unmanaged = config.ManagementState == v1alpha1.Unmanaged
		targets = append(targets, t)
	}
	o.mu.Lock()
	o.published, o.onOpenShift = targets, c.openShift
	maps.DeleteFunc(o.deliveries, func(name string, _ target.Status) bool {
		return !slices.ContainsFunc(jobs, func(j *job) bool { return j.Name == name })
	})
	o.mu.Unlock()
	o.rollups.Set(targets)
	o.itself.Wake()
}

// delivered keeps how a target's delivery stands.
func (o *Operator) delivered(name string, s target.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deliveries[name] != s {
		o.deliveries[name] = s
		o.itself.Wake()
	}
}

// state is what there is to tell of the operator itself. Only OpenShift asks.
func (o *Operator) state() (in clusteroperator.Input, related []clusteroperator.Object, ready bool) {
	o.mu.Lock()
	targets, openShift := o.published, o.onOpenShift
	for _, t := range targets {
		verdict, _ := o.rollups.Verdict(t.Name)
		in.Targets = append(in.Targets, clusteroperator.Target{Name: t.Name, Delivery: o.deliveries[t.Name], Result: verdict.Result})
	}
	o.mu.Unlock()
	in.Configured = o.config.Load() != nil
	in.Configuration = o.told()
	if !in.Configured && in.Configuration != "" {
		// Nothing was looked at, so it is not known where this is. Where there is no
		// ClusterOperator, none is written.
		openShift = o.OpenShift == nil || *o.OpenShift
	}
	return in, o.related(targets), openShift
}

// related are the objects by which one sees what the operator does.
func (o *Operator) related(targets []rollupcontroller.Target) []clusteroperator.Object {
	all := []clusteroperator.Object{
		{Resource: "namespaces", Name: o.Namespace},
		{Group: policyResource.Group, Resource: policyResource.Resource, Name: "kms-health-reporter"},
		{Group: policyBindingResource.Group, Resource: policyBindingResource.Resource, Name: "kms-health-reporter"},
	}
	for _, t := range targets {
		all = append(all,
			clusteroperator.Object{Group: "operator.openshift.io", Resource: string(t.Resource), Name: "cluster"},
			clusteroperator.Object{Resource: "namespaces", Name: t.Namespace},
			clusteroperator.Object{Group: clusterRoleResource.Group, Resource: clusterRoleResource.Resource, Name: render.Name(t.Name)},
			clusteroperator.Object{Group: bindingResource.Group, Resource: bindingResource.Resource, Name: render.Name(t.Name)},
		)
	}
	return all
}
