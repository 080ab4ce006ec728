package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/wait"
)

// Variant is a feature set of OpenShift: it chooses among the CRD manifests.
type Variant string

const (
	// Default has no status.encryptionStatus.
	Default Variant = "Default"
	// TechPreviewNoUpgrade has it (gate KMSEncryption).
	TechPreviewNoUpgrade Variant = "TechPreviewNoUpgrade"
)

// Resources of operator.openshift.io/v1, each with one object: ClusterObject.
const (
	KubeAPIServers      = contract.KubeAPIServers
	OpenShiftAPIServers = "openshiftapiservers"
	Authentications     = "authentications"
)

// ClusterObject is the name of the one object of each operator resource.
const ClusterObject = contract.OperatorObject

// OperatorGroup is the API group of the operator resources.
const OperatorGroup = contract.OperatorGroup

// OperatorGVR names an operator resource for a dynamic client.
func OperatorGVR(resource string) schema.GroupVersionResource {
	return contract.ResourceOf(resource).GVR()
}

// operatorCRD is an operator resource, to install and to fill it.
type operatorCRD struct{ contract.Resource }

// file is that of the CRD in a variant. Its name begins with the operator's place in a release.
func (crd operatorCRD) file(module string, variant Variant) (string, error) {
	pattern := filepath.Join(module, "operator/v1/zz_generated.crd-manifests", fmt.Sprintf("*_%s-%s.crd.yaml", crd.Plural, variant))
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%d files are %s, must be one", len(files), pattern)
	}
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// ApplyOperatorCRDs installs the CRDs of the operator resources in this variant, or changes
// those that are installed to it, makes sure that each has its object "cluster", and waits until
// the variant is active. Objects are kept; a field that the new variant lacks is no longer
// shown, and removed by the next write of the object.
func (c *ControlPlane) ApplyOperatorCRDs(ctx context.Context, variant Variant) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	module, err := OpenShiftAPIDir()
	if err != nil {
		return err
	}
	var operatorCRDs []operatorCRD
	var files []string
	for _, resource := range contract.Resources {
		crd := operatorCRD{resource}
		file, err := crd.file(module, variant)
		if err != nil {
			return err
		}
		operatorCRDs, files = append(operatorCRDs, crd), append(files, file)
	}
	if err := c.InstallCRDs(ctx, files...); err != nil {
		return fmt.Errorf("apply the operator CRDs of %s: %w", variant, err)
	}
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	for i, crd := range operatorCRDs {
		objects := client.Resource(OperatorGVR(crd.Plural))
		_, err := objects.Create(ctx, crd.object(), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %q: %w", crd.Plural, ClusterObject, err)
		}
		wanted, err := crd.hasEncryptionStatus(files[i])
		if err != nil {
			return err
		}
		if err := crd.awaitEncryptionStatus(ctx, objects, wanted); err != nil {
			return fmt.Errorf("wait until %s are served as %s: %w", crd.Plural, variant, err)
		}
	}
	return nil
}

func (crd operatorCRD) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": OperatorGroup + "/v1",
		"kind":       crd.Kind,
		"metadata":   map[string]any{"name": ClusterObject},
		"spec":       map[string]any{"managementState": "Managed"},
	}}
}

// hasEncryptionStatus looks the field up in the manifest, so that a variant
// which we do not name above is waited for, too.
func (crd operatorCRD) hasEncryptionStatus(file string) (bool, error) {
	manifest, err := readCRD(file)
	if err != nil {
		return false, err
	}
	for _, version := range manifest.Spec.Versions {
		if version.Name != "v1" || version.Schema == nil {
			continue
		}
		properties := version.Schema.OpenAPIV3Schema
		for _, field := range crd.EncryptionStatus {
			next, found := properties.Properties[field]
			if !found {
				return false, nil
			}
			properties = &next
		}
		return true, nil
	}
	return false, fmt.Errorf("%s serves no version v1", filepath.Base(file))
}

// awaitEncryptionStatus finds out which schema the handler uses: the
// published OpenAPI document and the CRD's conditions run ahead of it, or after
// it. A strict dry run that sets the field is refused with "unknown field" where
// it is unknown; any other answer knows it.
func (crd operatorCRD) awaitEncryptionStatus(ctx context.Context, objects dynamic.ResourceInterface, wanted bool) error {
	path := strings.Join(crd.EncryptionStatus, ".")
	body := `{}`
	for i := len(crd.EncryptionStatus) - 1; i >= 0; i-- {
		body = fmt.Sprintf(`{%q:%s}`, crd.EncryptionStatus[i], body)
	}
	return wait.Until(ctx, func(ctx context.Context) error {
		_, err := objects.Patch(ctx, ClusterObject, types.MergePatchType, []byte(body), metav1.PatchOptions{
			DryRun:          []string{metav1.DryRunAll},
			FieldValidation: metav1.FieldValidationStrict,
		}, "status")
		var known bool
		switch {
		// The code for it is 400 or 422, by the kind of patch.
		case err != nil && strings.Contains(err.Error(), `unknown field "`+path+`"`):
			known = false
		case err == nil, apierrors.IsInvalid(err):
			known = true
		default:
			return err
		}
		if known != wanted {
			return fmt.Errorf("%s is known: %t, wanted: %t", path, known, wanted)
		}
		return nil
	})
}
