package controlplane

import (
	"context"
	"fmt"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/test/harness/program"
)

// ConfigGroup is the API group of OpenShift's cluster-wide configuration.
const ConfigGroup = "config.openshift.io"

// Resources of config.openshift.io/v1 that ApplyOpenShiftConfig installs.
const (
	APIServers       = "apiservers"
	Infrastructures  = "infrastructures"
	ClusterOperators = "clusteroperators"
)

// ConfigGVR names a configuration resource for a dynamic client.
func ConfigGVR(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ConfigGroup, Version: "v1", Resource: resource}
}

// ConfigCRDs are the files of the CRDs that ApplyOpenShiftConfig installs.
func ConfigCRDs(variant Variant) (files []string, err error) {
	module, err := OpenShiftAPIDir()
	if err != nil {
		return nil, err
	}
	const config, security = "config/v1/zz_generated.crd-manifests/", "security/v1/zz_generated.crd-manifests/"
	for _, file := range []string{
		config + "0000_10_config-operator_01_apiservers-" + string(variant),
		config + "0000_10_config-operator_01_infrastructures-" + string(variant),
		config + "0000_00_cluster-version-operator_01_clusteroperators",
		security + "0000_03_config-operator_01_securitycontextconstraints",
	} {
		files = append(files, filepath.Join(module, file+".crd.yaml"))
	}
	return files, nil
}

// ApplyOpenShiftConfig makes the cluster look like OpenShift to clients that read its
// configuration: it installs the CRDs of apiservers, infrastructures (in this
// variant: encryption by KMS is in TechPreviewNoUpgrade's alone),
// clusteroperators and securitycontextconstraints, and makes sure that there are
// apiservers/cluster, with an empty spec, and infrastructures/cluster. That one
// gets the status of a highly available cluster on no platform; one that is
// there already keeps its own.
func (c *ControlPlane) ApplyOpenShiftConfig(ctx context.Context, variant Variant) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	files, err := ConfigCRDs(variant)
	if err != nil {
		return err
	}
	if err := c.InstallCRDs(ctx, files...); err != nil {
		return fmt.Errorf("apply OpenShift's configuration CRDs of %s: %w", variant, err)
	}
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	if _, err := createConfig(ctx, client, APIServers, "APIServer"); err != nil {
		return err
	}
	created, err := createConfig(ctx, client, Infrastructures, "Infrastructure")
	if err != nil || created == nil {
		return err
	}
	created.Object["status"] = map[string]any{
		"controlPlaneTopology":   "HighlyAvailable",
		"infrastructureTopology": "HighlyAvailable",
		"cpuPartitioning":        "None",
		"infrastructureName":     "controlplane",
		"apiServerURL":           c.URL(),
		"apiServerInternalURI":   c.URL(),
		"platform":               "None",
		"platformStatus":         map[string]any{"type": "None"},
	}
	if _, err := client.Resource(ConfigGVR(Infrastructures)).UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("set the status of %s %q: %w", Infrastructures, ClusterObject, err)
	}
	return nil
}

// createConfig returns nil for an object that was there.
func createConfig(ctx context.Context, client dynamic.Interface, resource, kind string) (*unstructured.Unstructured, error) {
	created, err := client.Resource(ConfigGVR(resource)).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": ConfigGroup + "/v1",
		"kind":       kind,
		"metadata":   map[string]any{"name": ClusterObject},
		"spec":       map[string]any{},
	}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("create %s %q: %w", resource, ClusterObject, err)
	}
	return created, nil
}

// MonitoringCRDs are the files of the CRDs of Prometheus's operator that manifests/ uses.
func MonitoringCRDs() ([]string, error) {
	module, err := program.ModuleDir("test/tools/monitoring", "github.com/prometheus-operator/prometheus-operator")
	crds := filepath.Join(module, "example/prometheus-operator-crd/monitoring.coreos.com_")
	return []string{crds + "servicemonitors.yaml", crds + "prometheusrules.yaml"}, err
}

// ApplyMonitoringCRDs installs them.
func (c *ControlPlane) ApplyMonitoringCRDs(ctx context.Context) error {
	files, err := MonitoringCRDs()
	if err != nil {
		return err
	}
	return c.InstallCRDs(ctx, files...)
}
