package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/harness/wait"
)

const crdTimeout = 30 * time.Second

// OpenShiftAPIDir is the folder of the module github.com/openshift/api at the
// version of our go.mod.
var OpenShiftAPIDir = sync.OnceValues(func() (string, error) {
	return program.ModuleDir(".", "github.com/openshift/api")
})

// InstallCRDs applies the CRDs of these files, and waits until each is served. It does not wait
// until a changed schema takes effect: nothing in the API shows.
func (c *ControlPlane) InstallCRDs(ctx context.Context, files ...string) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	config := c.RESTConfig()
	// The manifests are not ours to better.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	var served []schema.GroupVersionResource
	for _, file := range files {
		crd, err := applyCRD(ctx, client, file)
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
	// All first, then wait: they become established side by side.
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

func applyCRD(ctx context.Context, client dynamic.Interface, file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return nil, err
	}
	raw, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	resource := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	_, err = client.Resource(resource).Patch(ctx, crd.Name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: "install", Force: new(true)})
	return crd, err
}
