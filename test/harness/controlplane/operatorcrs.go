package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
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

// OperatorCRDs are the files of the CRDs of the operator resources in a variant, in the order of contract.Resources.
func OperatorCRDs(variant Variant) (files []string, err error) {
	module, err := OpenShiftAPIDir()
	if err != nil {
		return nil, err
	}
	for _, r := range contract.Resources {
		// The name begins with the operator's place in a release.
		pattern := fmt.Sprintf("%s/operator/v1/zz_generated.crd-manifests/*_%s-%s.crd.yaml", module, r.Plural, variant)
		found, err := filepath.Glob(pattern)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("%d files are %s, must be one", len(found), pattern)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, found[0])
	}
	return files, nil
}

// ApplyOperatorCRDs installs the CRDs of the operator resources in this variant, or changes
// those that are installed to it, makes sure that each has its object "cluster", and waits until
// the variant is active. Objects are kept; a field that the new variant lacks is no longer
// shown, and removed by the next write of the object.
func (c *ControlPlane) ApplyOperatorCRDs(ctx context.Context, variant Variant) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	files, err := OperatorCRDs(variant)
	if err != nil {
		return err
	}
	if err := c.InstallCRDs(ctx, files...); err != nil {
		return fmt.Errorf("apply the operator CRDs of %s: %w", variant, err)
	}
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	for _, r := range contract.Resources {
		objects := client.Resource(OperatorGVR(r.Plural))
		_, err := objects.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": OperatorGroup + "/v1",
			"kind":       r.Kind,
			"metadata":   map[string]any{"name": ClusterObject},
			"spec":       map[string]any{"managementState": "Managed"},
		}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %q: %w", r.Plural, ClusterObject, err)
		}
		if err := awaitEncryptionStatus(ctx, objects, r.EncryptionStatus, variant == TechPreviewNoUpgrade); err != nil {
			return fmt.Errorf("wait until %s are served as %s: %w", r.Plural, variant, err)
		}
	}
	return nil
}

// awaitEncryptionStatus finds out which schema the handler uses: the
// published OpenAPI document and the CRD's conditions run ahead of it, or after
// it. A strict dry run that sets the field is refused with "unknown field" where
// it is unknown; any other answer knows it.
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
