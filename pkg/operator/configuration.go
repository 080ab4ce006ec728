package operator

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/metric"
)

func registered(registry prometheus.Registerer, m contract.Metric) prometheus.Gauge {
	g := metric.Gauge(m)
	registry.MustRegister(g)
	return g
}

// configure applies the content of the configuration file, or keeps the previous
// one.
func (o *operator) configure(content filewatch.Content) {
	c, err := o.decode(content)
	if err != nil {
		o.valid.Set(0)
		o.reject(err.Error())
		return
	}
	o.valid.Set(1)
	if was := o.problem.Swap(nil); was != nil {
		klog.InfoS("The configuration is valid again", "file", o.flags.ConfigFile)
	}
	o.config.Store(c)
	klog.InfoS("Configured", "file", o.flags.ConfigFile,
		"managementState", c.ManagementState, "apiServers", len(c.APIServers))
	o.deliveries.Configure(c)
	o.clusterOperator.Wake()
}

func (o *operator) decode(content filewatch.Content) (*v1alpha1.OperatorConfiguration, error) {
	if content.Err != nil {
		return nil, content.Err
	}
	c, err := v1alpha1.DecodeOperator(content.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.flags.ConfigFile, err)
	}
	if err := c.UseImage(o.flags.Image); err != nil {
		return nil, fmt.Errorf("%s: %w", o.flags.ConfigFile, err)
	}
	return c, nil
}

// reject reports why the file is rejected, once for each reason.
func (o *operator) reject(why string) {
	if was := o.problem.Swap(&why); was != nil && *was == why {
		return
	}
	klog.ErrorS(nil, "Rejected the configuration, "+o.active(), "file", o.flags.ConfigFile, "reason", why)
	if o.runs.Load() {
		o.announce(why)
	}
	o.clusterOperator.Wake()
}

// announce writes the Event about a rejected file: the replica that runs the controllers does.
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
