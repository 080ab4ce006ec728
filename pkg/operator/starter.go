// Package operator runs the operator as a process: it keeps a reporter next to every KMS plugin of a cluster's API
// servers, and combines their reports in a roll-up.
//
// Start reading at RunOperator. It creates the queues and the controllers, and starts the controllers. The controller
// of the reporters starts the informers of each API server. Every replica follows the configuration file and the TLS
// profile, and serves metrics and health. Only the holder of the Lease runs the controllers. Metrics are served over
// HTTPS to clients whom the API server allows to get the path, health over HTTP to everyone.
package operator

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operator/cabundlecontroller"
	"github.com/kms-health/kms-health/pkg/operator/clusteroperatorcontroller"
	"github.com/kms-health/kms-health/pkg/operator/configobserver"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/pluginhealthcontroller"
	"github.com/kms-health/kms-health/pkg/operator/reportercontroller"
	"github.com/kms-health/kms-health/pkg/operator/syncqueue"
	"github.com/kms-health/kms-health/pkg/serverclock"
	"github.com/kms-health/kms-health/pkg/serving"
	"github.com/kms-health/kms-health/pkg/version"
)

// RunOperator runs the operator with valid options until ctx ends, which is no error. It starts without the
// configuration file and without an API server.
func RunOperator(ctx context.Context, o Options) error {
	// Clients. now reads the Date of every response.
	config, err := restConfig(o.Kubeconfig, version.Version)
	if err != nil {
		return err
	}
	now := serverclock.New(clock.RealClock{})
	config.Wrap(now.Wrap)
	klog.InfoS("Starting", "version", version.Version, "fips140", version.FIPS(), "config", o.ConfigFile,
		"namespace", o.Namespace, "server", config.Host)
	if ca, err := caOf(config); o.KeepCA && len(ca) == 0 {
		klog.ErrorS(err, "The operator's Deployment has no CA of the API server: set the annotation by the second command "+
			"of docs/quickstart/single-node.md", "annotation", contract.CAAnnotation)
	}
	dynamicClient, resources, err := newDynamicClients(config)
	if err != nil {
		return err
	}
	client, err := newClients(config)
	if err != nil {
		return err
	}

	// Events, metrics, and the queues. Controllers sync the keys that others enqueue.
	event, endEvents := newEvents(&typedcorev1.EventSinkImpl{Interface: client.core.Events(o.Namespace)}, o.Namespace)
	defer endEvents()
	registry := newRegistry()
	leading := metric.GaugeVec(registry, contract.MetricLeader).WithLabelValues()
	recorder := recorded(event, registry)
	reporterQueue := syncqueue.New("deliver reporters")
	healthQueue := syncqueue.New("write the roll-up")
	clusterOperatorQueue := syncqueue.New("write the ClusterOperator")
	allReporters := informers.Key{Queue: reporterQueue, Name: syncqueue.All}

	// What configures the operator.
	file := &configobserver.File{
		Path: o.ConfigFile, Image: o.Image,
		Valid:   metric.GaugeVec(registry, contract.MetricConfigurationValid).WithLabelValues(),
		Enqueue: []informers.Key{allReporters, {Queue: clusterOperatorQueue, Name: contract.ClusterOperator}},
	}
	profile := configobserver.NewTLSProfile(dynamicClient, o.OpenShift, allReporters)

	// Controllers.
	health := pluginhealthcontroller.New(pluginhealthcontroller.Options{
		Client: dynamicClient, Event: recorder, Registry: registry, Now: now.Now, Unanswered: now.Unanswered,
		Queue: healthQueue, Reporters: reporterQueue, ClusterOperator: clusterOperatorQueue,
	})
	reporters := reportercontroller.New(reportercontroller.Options{
		Client: dynamicClient, Resources: resources, Core: client.core, CA: func() ([]byte, error) { return caOf(config) },
		TLS:       profile.Current,
		Namespace: o.Namespace, OpenShift: o.OpenShift, Server: config.Host,
		Event: recorder, Registry: registry, Now: now.Now, Config: file, Health: health,
		Queue: reporterQueue, HealthQueue: healthQueue, ClusterOperator: clusterOperatorQueue,
	})
	clusterOperator := &clusteroperatorcontroller.Controller{
		Client: dynamicClient, Now: now.Now, Version: o.Version, Inertia: o.DegradedInertia,
		Namespace: o.Namespace, OpenShift: o.OpenShift, Queue: clusterOperatorQueue,
		Config: file, Reporters: reporters, Health: health,
	}
	controllers := []controller{health, reporters, clusterOperator}
	if o.KeepCA {
		controllers = append(controllers, &cabundlecontroller.Controller{
			ConfigMaps: client.core.ConfigMaps(o.Namespace), Deployments: client.apps.Deployments(o.Namespace),
			Namespace: o.Namespace, Queue: syncqueue.New("keep the CA current"),
		})
	}

	// Servers and observers on every replica, and the controllers on the one that leads.
	all, ctx := errgroup.WithContext(ctx)
	if o.MetricsAddress != none {
		listener, err := listenTLS(o.MetricsAddress, o.MetricsCertDir, profile.Serving)
		if err != nil {
			return err
		}
		clients := &access{tokens: client.authentication.TokenReviews(),
			accesses: client.authorization.SubjectAccessReviews()}
		all.Go(func() error { return serving.Serve(ctx, listener, metricsHandler(registry, clients)) })
	}
	if o.HealthAddress != none {
		listener, err := serving.Listen(o.HealthAddress, nil)
		if err != nil {
			return err
		}
		all.Go(func() error { return serving.Serve(ctx, listener, healthHandler(ready(file, reporters))) })
	}
	all.Go(func() error { profile.Run(ctx); return nil })
	all.Go(func() error { file.Run(ctx); return nil })
	all.Go(func() error { return lead(ctx, o, client.coordination, work(leading, controllers)) })
	return all.Wait()
}

// controller runs until ctx ends. One replica at a time may run it.
type controller interface{ Run(ctx context.Context) }

// work returns what the leader runs: all controllers, until ctx ends.
func work(leading prometheus.Gauge, controllers []controller) func(context.Context) {
	return func(ctx context.Context) {
		leading.Set(1)
		defer leading.Set(0)
		var running errgroup.Group
		for _, c := range controllers {
			running.Go(func() error { c.Run(ctx); return nil })
		}
		_ = running.Wait()
	}
}

// ready reports whether the operator can do its work: a configuration is active, and no other installation owns an API
// server.
func ready(file *configobserver.File, reporters *reportercontroller.Controller) func() bool {
	return func() bool {
		for _, t := range reporters.Targets() {
			if t.Status.Reason == contract.OtherInstallation {
				return false
			}
		}
		return file.Current() != nil
	}
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	metric.GaugeVec(registry, contract.MetricOperatorBuild).WithLabelValues(version.LabelValues()...).Set(1)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}
