package clusteroperatorcontroller

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// firstLook is how long an operator that has just started waits, at most, for the status and verdict of all targets.
// Until then the ClusterOperator stays unchanged.
const firstLook = 30 * time.Second

// collect returns what to report. running is how long the operator has run. ready is false while too little is known,
// and if this is not OpenShift.
func (c *Controller) collect(running time.Duration) (in Input, ready bool) {
	unknown := false
	for _, t := range c.Reporters.Targets() {
		if t.Status.Reason == contract.OtherInstallation {
			return in, false // the other installation owns the ClusterOperator, too
		}
		verdict := c.Health.Verdict(t.Name)
		unknown = unknown || t.Status == (delivery.Status{}) || !verdict.Judged && !t.Status.Reason.NeedsAction()
		in.Targets = append(in.Targets, Target{t, verdict})
	}
	config := c.Config.Current() // before one is active, the targets are not known
	in.Configured = config != nil
	if p := c.Config.Problem(); p != "" {
		in.Configuration = "configuration: " + p
	}
	known := in.Configuration != "" || in.Configured && (len(in.Targets) > 0 || len(config.APIServers) == 0)
	return in, known && c.OpenShift && (!unknown || running > firstLook)
}

// related returns the objects that show what the operator does, for `oc adm inspect`. That command also gathers all
// of config.openshift.io, and most of what is in a namespace, but no Lease.
func related(namespace string, targets []Target) (all []any) {
	add := func(kind schema.GroupVersionResource, name string) {
		all = append(all, map[string]any{"group": kind.Group, "resource": kind.Resource, "name": name})
	}
	add(informers.Namespaces, namespace)
	all = append(all, map[string]any{
		"group": coordinationv1.GroupName, "resource": "leases", "namespace": namespace, "name": contract.OperatorName,
	})
	for _, name := range objects.Policies {
		add(informers.Policies, name)
		add(informers.PolicyBindings, name)
	}
	for _, t := range targets {
		destination := t.ReportsTo()
		add(destination.GVR(), destination.Name)
		add(informers.Namespaces, t.Namespace)
		add(informers.ClusterRoles, contract.ReporterName(t.Name))
		add(informers.ClusterBindings, contract.ReporterName(t.Name))
	}
	return all
}
