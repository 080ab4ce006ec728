// Package operator runs the operator as a process: it keeps a reporter beside every KMS plugin of a
// cluster's API servers, and rolls up what they report.
//
// It wires controllers that share nothing but immutable values: apiserver (reporters) and status
// (conditions, ClusterOperator). The configuration file and the TLS profile are followed on every
// replica; the controllers run on one at a time, the holder of a Lease. Metrics are served over HTTPS to
// clients whom the API server allows to get the path, health over HTTP to everyone.
package operator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operator/clusteroperatorcontroller"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operator/pluginhealthcontroller"
	"github.com/kms-health/kms-health/pkg/operator/reportercontroller"
)

// firstLook is how long an operator that has just started waits for what it reports of
// its targets: until then its ClusterOperator stays as it was.
const firstLook = 30 * time.Second

type operator struct {
	reportercontroller.Options
	flags   Options
	event   eventFunc        // only the Event
	runs    atomic.Bool      // the controllers
	valid   prometheus.Gauge // the configuration is active
	leading prometheus.Gauge // this replica runs the controllers
	config  atomic.Pointer[v1alpha1.OperatorConfiguration]
	problem atomic.Pointer[string] // why the configuration file is rejected
	profile *profile
	ca      *ownCA    // nil: not KeepCA
	began   time.Time // the work

	deliveries      *reportercontroller.Controller
	rollups         *pluginhealthcontroller.Controller
	clusterOperator *clusteroperatorcontroller.Controller
}

// newOperator makes an operator. Of the deliveries' options it sets TLS, Rollup and Changed itself.
func newOperator(flags Options, o reportercontroller.Options, unanswered func() time.Time) *operator {
	event := o.Event
	o.Event = recorded(o.Event, o.Registry)
	op := &operator{
		Options: o, flags: flags, event: event,
		valid:   registered(o.Registry, contract.MetricConfigurationValid),
		leading: registered(o.Registry, contract.MetricLeader),
	}
	op.clusterOperator = clusteroperatorcontroller.New(clusteroperatorcontroller.Options{
		Client: o.Client, Clock: o.Clock, Now: o.Now, Version: flags.Version, Inertia: flags.DegradedInertia,
		Observe: op.observe,
	})
	op.profile = newProfile(o.Client, o.OpenShift, func() { op.deliveries.EnqueueAll() })
	op.rollups = pluginhealthcontroller.New(pluginhealthcontroller.Options{
		Client: o.Client, Event: o.Event, Registry: o.Registry, Clock: o.Clock, Now: o.Now, Unanswered: unanswered,
		Changed: op.clusterOperator.Enqueue, Gone: func(target string) { op.deliveries.Enqueue(target) },
	})
	o.TLS, o.Rollup, o.Changed = op.profile.settings, op.rollups, op.clusterOperator.Enqueue
	op.deliveries = reportercontroller.New(o)
	if flags.KeepCA {
		op.ca = newOwnCA(o, op.clusterOperator.Enqueue)
	}
	return op
}

type eventFunc = func(target, eventType, reason, message string)

// recorded is a function that counts and logs each change beside its Event.
func recorded(event eventFunc, registry prometheus.Registerer) eventFunc {
	changes := metric.CounterVec(contract.MetricChanges)
	registry.MustRegister(changes)
	return func(target, eventType, reason, message string) {
		changes.WithLabelValues(target, reason).Inc()
		klog.InfoS("Changed", "apiServer", target, "reason", reason, "message", message)
		event(target, eventType, reason, message)
	}
}

// follow keeps the configuration as the file has it, and the TLS profile as the cluster
// has it, until ctx ends. It runs on every replica, and needs no API server.
func (o *operator) follow(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if o.profile.Informer != nil {
		running.Go(func() { o.profile.Run(ctx) })
	}
	filewatch.New(o.flags.ConfigFile, v1alpha1.MaxFileSize).Run(ctx, o.configure)
}

func (o *operator) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	o.leading.Set(1)
	defer o.leading.Set(0)
	o.runs.Store(true)
	defer o.runs.Store(false)
	if why := o.problem.Load(); why != nil {
		o.announce(*why)
	}
	o.began = o.Clock.Now()
	running.Go(func() { o.rollups.Run(ctx) })
	running.Go(func() { o.clusterOperator.Run(ctx) })
	if o.ca != nil {
		running.Go(func() { o.ca.run(ctx) })
	}
	o.deliveries.Run(ctx)
}

// ready reports whether the operator can do its work.
func (o *operator) ready() bool {
	for _, status := range o.deliveries.Statuses() {
		if status.Reason == contract.OtherInstallation {
			return false
		}
	}
	return o.config.Load() != nil
}

// observe is what there is to report of the operator itself, on OpenShift.
func (o *operator) observe() (in clusteroperatorcontroller.Input, related []any, ready bool) {
	statuses, targets := o.deliveries.Statuses(), o.deliveries.Targets()
	unknown := false
	for _, t := range targets {
		if statuses[t.Name].Reason == contract.OtherInstallation {
			return in, nil, false // the ClusterOperator is that one's, too
		}
		verdict := o.rollups.Verdict(t.Name)
		delivered := statuses[t.Name]
		unknown = unknown || delivered == (delivery.Status{}) || !verdict.Judged && !delivered.Reason.NeedsAction()
		in.Targets = append(in.Targets, clusteroperatorcontroller.Target{Name: t.Name, Delivery: delivered, Verdict: verdict})
	}
	config := o.config.Load() // before one is active, the targets are not known
	in.Configured = config != nil
	if p := o.problem.Load(); p != nil {
		in.Configuration = "configuration: " + *p
	}
	if o.ca != nil {
		in.CA = o.ca.problem()
	}
	known := in.Configuration != "" || in.Configured && (len(targets) > 0 || len(config.APIServers) == 0)
	ready = known && o.deliveries.IsOpenShift() && (!unknown || o.Clock.Since(o.began) > firstLook)
	return in, o.related(targets), ready
}

// related are the objects that show what the operator does, for `oc adm inspect`. It also
// gathers all of config.openshift.io, and most of what is in a namespace, but no Lease.
func (o *operator) related(targets []v1alpha1.APIServer) (all []any) {
	add := func(kind schema.GroupVersionResource, name string) {
		all = append(all, map[string]any{"group": kind.Group, "resource": kind.Resource, "name": name})
	}
	add(informers.Namespaces, o.Namespace)
	all = append(all, map[string]any{
		"group": coordinationv1.GroupName, "resource": "leases", "namespace": o.Namespace, "name": contract.OperatorName,
	})
	for _, name := range objects.Policies {
		add(informers.Policies, name)
		add(informers.PolicyBindings, name)
	}
	for _, t := range targets {
		destination := contract.ResourceFor(string(t.Resource), t.Name)
		add(destination.GVR(), destination.Name)
		add(informers.Namespaces, t.Namespace)
		add(informers.ClusterRoles, contract.ReporterName(t.Name))
		add(informers.ClusterBindings, contract.ReporterName(t.Name))
	}
	return all
}

// configure applies the content of the configuration file, or keeps the previous one, and reports
// why the file is rejected, once for each reason.
func (o *operator) configure(content filewatch.Content) {
	c, err := o.decode(content)
	if err != nil {
		o.valid.Set(0)
		why := err.Error()
		if was := o.problem.Swap(&why); was != nil && *was == why {
			return
		}
		klog.ErrorS(err, "Rejected the configuration, "+o.active(), "file", o.flags.ConfigFile)
		if o.runs.Load() {
			o.announce(why)
		}
		o.clusterOperator.Enqueue()
		return
	}
	o.valid.Set(1)
	o.problem.Store(nil)
	o.config.Store(c)
	klog.InfoS("Configured", "file", o.flags.ConfigFile,
		"managementState", c.ManagementState, "apiServers", len(c.APIServers))
	o.deliveries.Configure(c)
	o.clusterOperator.Enqueue()
}

func (o *operator) decode(content filewatch.Content) (c *v1alpha1.OperatorConfiguration, err error) {
	if content.Err != nil {
		return nil, content.Err
	}
	if c, err = v1alpha1.DecodeOperator(content.Data); err == nil {
		err = c.UseImage(o.flags.Image)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.flags.ConfigFile, err)
	}
	return c, nil
}

// announce writes the Event of a rejected file, on the replica that runs the controllers.
func (o *operator) announce(why string) {
	o.event("configuration", corev1.EventTypeWarning, contract.EventConfigurationInvalid,
		"rejected, "+o.active()+": "+why)
}

// active describes the configuration that is used after one was rejected.
func (o *operator) active() string {
	if o.config.Load() == nil {
		return "none is active"
	}
	return "the last valid one stays active"
}

func registered(registry prometheus.Registerer, m contract.Metric) prometheus.Gauge {
	g := metric.GaugeVec(m)
	registry.MustRegister(g)
	return g.WithLabelValues()
}
