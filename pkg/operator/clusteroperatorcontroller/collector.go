package clusteroperatorcontroller

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/configobserver"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
)

// firstLook is how long an operator that has just started waits, at most, for the status and verdict of all targets.
// Until then the ClusterOperator stays unchanged.
const firstLook = 30 * time.Second

// Collector collects what the ClusterOperator reports.
type Collector struct {
	Namespace string // the operator's own
	Config    *configobserver.File
	CA        interface{ Problem() string } // nil: the operator keeps none
	Reporters interface {
		Targets() []delivery.Target
		IsOpenShift() bool
	}
	Health interface {
		Verdict(target string) delivery.Verdict
	}
}

// Collect returns what to report, and the related objects, which `oc adm inspect` collects. running is how long the
// operator has run. ready is false while too little is known, and if this is not OpenShift.
func (c *Collector) Collect(running time.Duration) (in Input, related []any, ready bool) {
	targets, unknown := c.Reporters.Targets(), false
	for _, t := range targets {
		if t.Status.Reason == contract.OtherInstallation {
			return in, nil, false // the other installation owns the ClusterOperator, too
		}
		verdict := c.Health.Verdict(t.Name)
		unknown = unknown || t.Status == (delivery.Status{}) || !verdict.Judged && !t.Status.Reason.NeedsAction()
		in.Targets = append(in.Targets, Target{Name: t.Name, Delivery: t.Status, Verdict: verdict})
	}
	config := c.Config.Current() // before one is active, the targets are not known
	in.Configured = config != nil
	if p := c.Config.Problem(); p != "" {
		in.Configuration = "configuration: " + p
	}
	if c.CA != nil {
		in.CA = c.CA.Problem()
	}
	known := in.Configuration != "" || in.Configured && (len(targets) > 0 || len(config.APIServers) == 0)
	ready = known && c.Reporters.IsOpenShift() && (!unknown || running > firstLook)
	return in, c.related(targets), ready
}

// related returns the objects that show what the operator does, for `oc adm inspect`. That command also gathers all
// of config.openshift.io, and most of what is in a namespace, but no Lease.
func (c *Collector) related(targets []delivery.Target) (all []any) {
	add := func(kind schema.GroupVersionResource, name string) {
		all = append(all, map[string]any{"group": kind.Group, "resource": kind.Resource, "name": name})
	}
	add(informers.Namespaces, c.Namespace)
	all = append(all, map[string]any{
		"group": coordinationv1.GroupName, "resource": "leases", "namespace": c.Namespace, "name": contract.OperatorName,
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
