package olm

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/test/manifests/install"
)

var (
	//go:embed base.yaml
	base []byte
	//go:embed icon.svg
	icon []byte
)

// serviceVersion is the ClusterServiceVersion.
func (o Options) serviceVersion(p parts) (map[string]any, error) {
	if p.deployment == nil || p.clusterRole == nil || p.role == nil || p.namespace == nil {
		return nil, errors.New("the manifests have no Deployment, ClusterRole, Role or Namespace of the operator")
	}
	deployment, err := o.deployment(p.deployment)
	if err != nil {
		return nil, err
	}
	template, err := json.Marshal(p.namespace.Object)
	if err != nil {
		return nil, err
	}
	csv := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(base, &csv.Object); err != nil {
		return nil, fmt.Errorf("base.yaml: %w", err)
	}
	csv.SetName(packageName + ".v" + o.Version)
	labels, annotations := csv.GetLabels(), csv.GetAnnotations()
	for _, architecture := range o.Architectures {
		labels["operatorframework.io/arch."+architecture] = "supported"
	}
	maps.Copy(annotations, map[string]string{
		"containerImage": o.Operator,
		"createdAt":      o.Created.UTC().Format(time.RFC3339),
		"olm.skipRange":  ">=0.0.0 <" + o.Version, // every earlier version can be upgraded to this one
		"operatorframework.io/suggested-namespace":          p.namespace.GetName(),
		"operatorframework.io/suggested-namespace-template": string(template),
	})
	csv.SetLabels(labels)
	csv.SetAnnotations(annotations)
	rights := func(role *unstructured.Unstructured) []any {
		return []any{map[string]any{"serviceAccountName": install.ServiceAccount, "rules": role.Object["rules"]}}
	}
	maps.Copy(csv.Object["spec"].(map[string]any), map[string]any{
		"version": o.Version,
		"icon":    []any{map[string]any{"mediatype": "image/svg+xml", "base64data": base64.StdEncoding.EncodeToString(icon)}},
		"install": map[string]any{"strategy": "deployment", "spec": map[string]any{
			"deployments":        []any{deployment},
			"clusterPermissions": rights(p.clusterRole),
			"permissions":        rights(p.role),
		}},
		"relatedImages": []any{
			map[string]any{"name": "kms-health-operator", "image": o.Operator},
			map[string]any{"name": "kms-health-reporter", "image": o.Reporter},
		},
	})
	return csv.Object, nil
}

// deployment is the operator's, with the images of the release.
func (o Options) deployment(from *unstructured.Unstructured) (map[string]any, error) {
	spec, _, err := unstructured.NestedMap(from.Object, "spec") // a copy
	if err != nil {
		return nil, err
	}
	containers, _, err := unstructured.NestedSlice(spec, "template", "spec", "containers")
	if err != nil {
		return nil, err
	}
	images := 0
	for _, c := range containers {
		container, isMap := c.(map[string]any)
		if !isMap {
			return nil, errors.New("a container of the Deployment is no object")
		}
		container["image"] = o.Operator
		env, _ := container["env"].([]any)
		for _, e := range env {
			if variable, _ := e.(map[string]any); variable["name"] == "REPORTER_IMAGE" {
				variable["value"] = o.Reporter
				images++
			}
		}
	}
	if len(containers) != 1 || images != 1 {
		return nil, errors.New("the Deployment has not one container with REPORTER_IMAGE")
	}
	if err := unstructured.SetNestedSlice(spec, containers, "template", "spec", "containers"); err != nil {
		return nil, err
	}
	return map[string]any{"name": from.GetName(), "label": from.Object["metadata"].(map[string]any)["labels"], "spec": spec}, nil
}
