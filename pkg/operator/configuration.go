package operator

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

func newConfigurationGauge(registry prometheus.Registerer) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kms_health_operator_configuration_valid",
		Help: "1 when the current configuration file is in force, 0 when an earlier one is in force, or none.",
	})
	registry.MustRegister(g)
	return g
}

func newLeaderGauge(registry prometheus.Registerer) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kms_health_operator_leader",
		Help: "1 while this replica runs the controllers, 0 while another one should: only its series of targets and plugins exist.",
	})
	registry.MustRegister(g)
	return g
}

// configure puts the content of the configuration file in force, or keeps the previous
// one.
func (o *Operator) configure(content filewatch.Content) {
	c, err := o.decode(content)
	if err != nil {
		o.valid.Set(0)
		o.reject(err.Error())
		return
	}
	o.valid.Set(1)
	if was := o.problem.Swap(nil); was != nil {
		klog.InfoS("The configuration is valid again", "file", o.ConfigFile)
	}
	o.config.Store(c)
	klog.InfoS("Configured", "file", o.ConfigFile, "managementState", c.ManagementState, "targets", len(c.Targets))
	o.deliveries.Configure(c)
	o.clusterOperator.Wake()
}

func (o *Operator) decode(content filewatch.Content) (*v1alpha1.OperatorConfiguration, error) {
	if content.Err != nil {
		return nil, content.Err
	}
	c, err := v1alpha1.DecodeOperator(content.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	if err := c.UseImage(o.Image); err != nil {
		return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	return c, nil
}

// reject reports why the file is rejected, once for each reason.
func (o *Operator) reject(why string) {
	if was := o.problem.Swap(&why); was != nil && *was == why {
		return
	}
	klog.ErrorS(nil, "Rejected the configuration, "+o.inForce(), "file", o.ConfigFile, "reason", why)
	if o.runs.Load() {
		o.announce(why)
	}
	o.clusterOperator.Wake()
}

// announce writes the Event about a rejected file: the replica that runs the controllers does.
func (o *Operator) announce(why string) {
	o.event("configuration", corev1.EventTypeWarning, "ConfigurationInvalid", "rejected, "+o.inForce()+": "+why)
}

// inForce describes the configuration that is used after one was rejected.
func (o *Operator) inForce() string {
	if o.config.Load() == nil {
		return "none is in force"
	}
	return "the last valid one stays in force"
}
