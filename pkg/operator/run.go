package operator

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/metric"
	"github.com/kms-health/kms-health/pkg/operator/reportercontroller"
	"github.com/kms-health/kms-health/pkg/serverclock"
	"github.com/kms-health/kms-health/pkg/serving"
	"github.com/kms-health/kms-health/pkg/version"
)

// Run runs the operator with valid options until ctx ends, which is no error. Neither the
// configuration file nor the API server need be there at its start.
func Run(ctx context.Context, o Options) error {
	config, err := restConfig(o.Kubeconfig, o.Version)
	if err != nil {
		return err
	}
	now := serverclock.New(clock.RealClock{})
	config.Wrap(now.Wrap)
	klog.InfoS("Starting", "version", o.Version, "fips140", version.FIPS(), "config", o.ConfigFile,
		"namespace", o.Namespace, "server", config.Host)
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	limited := rest.CopyConfig(config)
	limited.Timeout = requestTimeout
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return err
	}
	event, endEvents := newEvents(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(o.Namespace)}, o.Namespace)
	defer endEvents()
	registry := newRegistry()
	op := newOperator(o, reportercontroller.Options{
		Client: dynamicClient, Kube: client,
		CA:        func() ([]byte, error) { return caOf(config) },
		Namespace: o.Namespace, OpenShift: o.OpenShift, Server: config.Host, KubeletRoot: o.KubeletRoot,
		Event: event, Registry: registry, Clock: clock.RealClock{}, Now: now.Now,
	}, now.Unanswered)

	all, ctx := errgroup.WithContext(ctx)
	if err := serve(ctx, all, o, client, registry, op); err != nil {
		return err
	}
	all.Go(func() error { op.follow(ctx); return nil })
	all.Go(func() error { return lead(ctx, o, config, op.run) })
	return all.Wait()
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := metric.GaugeVec(contract.MetricOperatorBuild)
	build.With(version.Labels()).Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// serve opens the addresses of metrics and health, on every replica.
func serve(
	ctx context.Context, all *errgroup.Group, o Options, client kubernetes.Interface,
	registry prometheus.Gatherer, op *operator,
) error {
	if o.MetricsAddress != none {
		listener, err := listenTLS(o.MetricsAddress, o.MetricsCertDir, op.profile.serving)
		if err != nil {
			return err
		}
		clients := &access{tokens: client.AuthenticationV1().TokenReviews(),
			accesses: client.AuthorizationV1().SubjectAccessReviews()}
		all.Go(func() error { return serving.Serve(ctx, listener, metricsHandler(registry, clients)) })
	}
	if o.HealthAddress != none {
		listener, err := serving.Listen(o.HealthAddress, nil)
		if err != nil {
			return err
		}
		all.Go(func() error { return serving.Serve(ctx, listener, healthHandler(op.ready)) })
	}
	return nil
}
