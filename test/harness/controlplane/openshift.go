package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	// This import keeps the module in go.mod. The code is not used: OperatorCRDs and ConfigCRDs read the manifests in
	// folders of the module.
	_ "github.com/openshift/api/config/v1/zz_generated.crd-manifests"
	_ "github.com/openshift/api/operator/v1/zz_generated.crd-manifests"
	_ "github.com/openshift/api/security/v1/zz_generated.crd-manifests"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
)

const crdTimeout = 2 * time.Minute

// Variant is a feature set of OpenShift. It selects the CRD manifests.
type Variant string

const (
	// Default has no status.encryptionStatus.
	Default Variant = "Default"
	// TechPreviewNoUpgrade has status.encryptionStatus (feature gate KMSEncryption).
	TechPreviewNoUpgrade Variant = "TechPreviewNoUpgrade"
)

// Resources of operator.openshift.io/v1 and config.openshift.io/v1. Except for cluster operators, the only object of
// each resource is ClusterObject.
const (
	KubeAPIServers      = contract.KubeAPIServers
	OpenShiftAPIServers = "openshiftapiservers"
	Authentications     = "authentications"

	APIServers       = "apiservers"
	Infrastructures  = "infrastructures"
	ClusterOperators = "clusteroperators"

	ClusterObject = contract.OperatorObject

	OperatorGroup = contract.OperatorGroup
	ConfigGroup   = "config.openshift.io"
)

// OperatorGVR names an operator resource for a dynamic client.
func OperatorGVR(resource string) schema.GroupVersionResource {
	return contract.ResourceOf(resource).GVR()
}

// ConfigGVR names a configuration resource for a dynamic client.
func ConfigGVR(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ConfigGroup, Version: "v1", Resource: resource}
}

// openShiftAPIDir returns the folder of the module github.com/openshift/api at the version in go.mod.
var openShiftAPIDir = sync.OnceValues(func() (string, error) {
	return program.ModuleDir(".", "github.com/openshift/api")
})

// OperatorCRDs returns the CRD files of the operator resources in a variant, in the order of contract.Resources.
func OperatorCRDs(variant Variant) (files []string, err error) {
	module, err := openShiftAPIDir()
	if err != nil {
		return nil, err
	}
	for _, r := range contract.Resources {
		// The name begins with the operator's place in a release.
		pattern := fmt.Sprintf("%s/operator/v1/zz_generated.crd-manifests/*_%s-%s.crd.yaml", module, r.Plural, variant)
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%d files are %s, must be one", len(found), pattern)
		}
		files = append(files, found[0])
	}
	return files, nil
}

// ConfigCRDs returns the CRD files that ApplyOpenShiftConfig installs.
func ConfigCRDs(variant Variant) (files []string, err error) {
	module, err := openShiftAPIDir()
	for _, file := range []string{
		"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_apiservers-" + string(variant),
		"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_infrastructures-" + string(variant),
		"config/v1/zz_generated.crd-manifests/0000_00_cluster-version-operator_01_clusteroperators",
		"security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints",
	} {
		files = append(files, filepath.Join(module, file+".crd.yaml"))
	}
	return files, err
}

// MonitoringCRDs returns the CRD files of the Prometheus operator's resources in manifests/.
func MonitoringCRDs() ([]string, error) {
	module, err := program.ModuleDir("test/tools/monitoring", "github.com/prometheus-operator/prometheus-operator")
	crds := filepath.Join(module, "example/prometheus-operator-crd/monitoring.coreos.com_")
	return []string{crds + "servicemonitors.yaml", crds + "prometheusrules.yaml"}, err
}

// ApplyMonitoringCRDs installs the CRDs of MonitoringCRDs.
func (c *ControlPlane) ApplyMonitoringCRDs(ctx context.Context) error {
	files, err := MonitoringCRDs()
	if err != nil {
		return err
	}
	return c.InstallCRDs(ctx, files...)
}

// ApplyOperatorCRDs installs the CRDs of the operator resources in this variant, or changes the installed CRDs to it.
// It creates each object "cluster" that is missing, and waits until the variant is active. Existing objects are kept.
// A field that the new variant lacks is no longer shown, and the next write of the object removes it.
func (c *ControlPlane) ApplyOperatorCRDs(ctx context.Context, variant Variant) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	files, err := OperatorCRDs(variant)
	if err != nil {
		return err
	}
	if err := c.InstallCRDs(ctx, files...); err != nil {
		return err
	}
	for _, r := range contract.Resources {
		objects := c.dynamic().Resource(OperatorGVR(r.Plural))
		_, err := createCluster(ctx, objects, OperatorGroup, r.Kind, map[string]any{"managementState": "Managed"})
		if err != nil {
			return err
		}
		if len(r.EncryptionStatus) == 0 {
			continue
		}
		if err := awaitEncryptionStatus(ctx, objects, r.EncryptionStatus, variant == TechPreviewNoUpgrade); err != nil {
			return fmt.Errorf("wait until %s are served as %s: %w", r.Plural, variant, err)
		}
	}
	return nil
}

// awaitEncryptionStatus waits until the handler uses the wanted schema. The published OpenAPI document and the CRD's
// conditions may change earlier or later than the handler. So it sends a strict dry run that sets the field: the
// error "unknown field" shows that the schema lacks it.
func awaitEncryptionStatus(ctx context.Context, objects dynamic.ResourceInterface, field []string, wanted bool) error {
	path := strings.Join(field, ".")
	body := `{}`
	for _, name := range slices.Backward(field) {
		body = fmt.Sprintf(`{%q:%s}`, name, body)
	}
	return wait.Until(ctx, func(ctx context.Context) error {
		_, err := objects.Patch(ctx, ClusterObject, types.MergePatchType, []byte(body), metav1.PatchOptions{
			DryRun:          []string{metav1.DryRunAll},
			FieldValidation: metav1.FieldValidationStrict,
		}, "status")
		// The status code of that error is 400 or 422, depending on the kind of patch.
		unknown := err != nil && strings.Contains(err.Error(), `unknown field "`+path+`"`)
		if err != nil && !unknown && !apierrors.IsInvalid(err) {
			return err
		}
		if unknown == wanted {
			return fmt.Errorf("%s is known: %t, wanted: %t", path, !unknown, wanted)
		}
		return nil
	})
}

// ApplyOpenShiftConfig makes the cluster look like OpenShift to clients that read its configuration. It installs the
// CRDs of apiservers, infrastructures, clusteroperators and securitycontextconstraints in this variant (only
// TechPreviewNoUpgrade has encryption by KMS). It creates apiservers/cluster, with an empty spec, and
// infrastructures/cluster, with the status of a highly available cluster on no platform. It does not change objects
// that exist.
func (c *ControlPlane) ApplyOpenShiftConfig(ctx context.Context, variant Variant) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	files, err := ConfigCRDs(variant)
	if err != nil {
		return err
	}
	if err := c.InstallCRDs(ctx, files...); err != nil {
		return err
	}
	client := c.dynamic()
	if _, err := createCluster(ctx, client.Resource(ConfigGVR(APIServers)), ConfigGroup, "APIServer", nil); err != nil {
		return err
	}
	infrastructures := client.Resource(ConfigGVR(Infrastructures))
	created, err := createCluster(ctx, infrastructures, ConfigGroup, "Infrastructure", nil)
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
	_, err = infrastructures.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// createCluster creates the object "cluster". It returns nil if the object exists.
func createCluster(
	ctx context.Context, objects dynamic.ResourceInterface, group, kind string, spec map[string]any,
) (*unstructured.Unstructured, error) {
	if spec == nil {
		spec = map[string]any{}
	}
	created, err := objects.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": kind, "metadata": map[string]any{"name": ClusterObject}, "spec": spec,
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("create %s %q: %w", kind, ClusterObject, err)
	}
	return created, nil
}

// dynamic returns an administrator's client. It drops warnings, since they are about manifests of OpenShift.
func (c *ControlPlane) dynamic() dynamic.Interface {
	config := c.RESTConfig()
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return dynamic.NewForConfigOrDie(config)
}

// InstallCRDs applies the CRDs in these files, and waits until each is served. It does not wait until a changed schema
// takes effect, since the API does not show that.
func (c *ControlPlane) InstallCRDs(ctx context.Context, files ...string) error {
	client := c.dynamic()
	var served []schema.GroupVersionResource
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		resource := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
		_, err = client.Resource(resource).Patch(ctx, crd.Name, types.ApplyYAMLPatchType, data,
			metav1.PatchOptions{FieldManager: "install", Force: new(true)})
		if err != nil {
			return fmt.Errorf("install the CRD in %s: %w", filepath.Base(file), err)
		}
		for _, version := range crd.Spec.Versions {
			if version.Served {
				served = append(served, schema.GroupVersionResource{
					Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural,
				})
			}
		}
	}
	// Wait only after all are applied: they become established concurrently.
	for _, resource := range served {
		err := wait.For(ctx, crdTimeout, resource.String()+" is served", func(ctx context.Context) error {
			_, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
