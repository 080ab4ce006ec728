package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/harness/wait"
)

const crdTimeout = 30 * time.Second

var openShiftAPIDir = sync.OnceValues(findOpenShiftAPIDir)

// OpenShiftAPIDir is the folder of the module github.com/openshift/api at the
// version of our go.mod. CRDs that we do not name here lie below it, for example
// config/v1/zz_generated.crd-manifests.
func OpenShiftAPIDir() (string, error) { return openShiftAPIDir() }

func findOpenShiftAPIDir() (string, error) {
	const module = "github.com/openshift/api"
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the folder of %s: %w: %s", module, err, strings.TrimSpace(stderr.String()))
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", fmt.Errorf("%s is not in the module cache: run \"go mod download %s\"", module, module)
	}
	return dir, nil
}

// InstallCRDs creates the CRDs of these files, or replaces their specs, and
// waits until each is served. It does not wait until a changed schema is in
// force: nothing in the API shows.
func (c *ControlPlane) InstallCRDs(ctx context.Context, files ...string) error {
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	config := c.RESTConfig()
	// The manifests are not ours to better.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for CRDs: %w", err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		crd, err := readCRD(file)
		if err != nil {
			return err
		}
		crds = append(crds, crd)
		if err := putCRD(ctx, client, crd); err != nil {
			return fmt.Errorf("install CRD %s: %w", crd.Name, err)
		}
	}
	// All first, then wait: they become established side by side.
	for _, crd := range crds {
		if err := c.awaitServed(ctx, client, crd); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

func readCRD(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a CRD: %w", err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		return nil, fmt.Errorf("read the CRD in %s: %w", filepath.Base(file), err)
	}
	if crd.Kind != "CustomResourceDefinition" {
		return nil, fmt.Errorf("%s holds a %q, not a CustomResourceDefinition", filepath.Base(file), crd.Kind)
	}
	return &crd, nil
}

func putCRD(ctx context.Context, client apiextensions.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	return wait.Until(ctx, func(ctx context.Context) error {
		_, err := api.Create(ctx, crd, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = updateCRD(ctx, api, crd)
		}
		// The API server's own controllers write its status meanwhile.
		if err != nil && !apierrors.IsConflict(err) {
			return wait.Final(err)
		}
		return err
	})
}

func updateCRD(ctx context.Context, api apiextensionsclient.CustomResourceDefinitionInterface, crd *apiextensionsv1.CustomResourceDefinition) error {
	live, err := api.Get(ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Annotations, live.Spec = crd.Annotations, crd.Spec
	_, err = api.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

func (c *ControlPlane) awaitServed(ctx context.Context, client apiextensions.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	objects, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	return wait.Until(ctx, func(ctx context.Context) error {
		live, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return wait.Final(err)
		}
		established := slices.ContainsFunc(live.Status.Conditions, func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
		})
		if !established {
			return errors.New("it is not established")
		}
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}
			// Its handler follows the condition a moment later.
			if _, err := objects.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
				return err
			}
		}
		return nil
	})
}
