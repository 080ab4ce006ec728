package olm

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/test/manifests/install"
)

const (
	homepage    = "https://github.com/kms-health/kms-health"
	maintainers = "kms-health maintainers"
	// No address of this domain exists: whoever publishes the operator writes theirs here, the only
	// place (docs/operate/release.md).
	email = "maintainers@example.com"
)

var (
	//go:embed description.txt
	description string
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
	annotations, err := o.csvAnnotations(p.namespace)
	if err != nil {
		return nil, err
	}
	labels := map[string]any{"operatorframework.io/os.linux": "supported"}
	for _, architecture := range o.Architectures {
		labels["operatorframework.io/arch."+architecture] = "supported"
	}
	rights := func(role *unstructured.Unstructured) []any {
		return []any{map[string]any{"serviceAccountName": install.ServiceAccount, "rules": role.Object["rules"]}}
	}
	return map[string]any{
		"apiVersion": "operators.coreos.com/v1alpha1",
		"kind":       "ClusterServiceVersion",
		"metadata":   map[string]any{"name": packageName + ".v" + o.Version, "annotations": annotations, "labels": labels},
		"spec": map[string]any{
			"displayName":    "KMS Plugin Health",
			"description":    description,
			"version":        o.Version,
			"minKubeVersion": "1.30.0", // ValidatingAdmissionPolicies
			"maturity":       "alpha",
			"provider":       map[string]any{"name": "kms-health", "url": homepage},
			"maintainers":    []any{map[string]any{"name": maintainers, "email": email}},
			"keywords":       []any{"kms", "encryption", "secrets", "monitoring"},
			"links": []any{
				map[string]any{"name": "Source", "url": homepage},
				map[string]any{"name": "Documentation", "url": homepage + "/tree/main/docs"},
			},
			"icon":         []any{map[string]any{"mediatype": "image/svg+xml", "base64data": base64.StdEncoding.EncodeToString(icon)}},
			"installModes": installModes(),
			"install": map[string]any{"strategy": "deployment", "spec": map[string]any{
				"deployments":        []any{deployment},
				"clusterPermissions": rights(p.clusterRole),
				"permissions":        rights(p.role),
			}},
			"relatedImages": []any{
				map[string]any{"name": "kms-health-operator", "image": o.Operator},
				map[string]any{"name": "kms-health-reporter", "image": o.Reporter},
			},
		},
	}, nil
}

// installModes: in the mode AllNamespaces OLM makes ClusterRoles of the rights in the operator's
// own namespace, among them that to create pods.
func installModes() []any {
	var modes []any
	for _, mode := range []string{"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"} {
		modes = append(modes, map[string]any{"type": mode, "supported": mode == "OwnNamespace"})
	}
	return modes
}

// csvAnnotations are what a console and a catalog show. There is no must-gather image: the
// ClusterOperator's related objects bring all that is needed into the cluster's own must-gather.
func (o Options) csvAnnotations(namespace *unstructured.Unstructured) (map[string]any, error) {
	template, err := json.Marshal(namespace.Object)
	if err != nil {
		return nil, err
	}
	annotations := map[string]any{
		"alm-examples":   "[]", // the operator has no resources of its own
		"capabilities":   "Seamless Upgrades",
		"categories":     "Monitoring, Security",
		"containerImage": o.Operator,
		"createdAt":      o.Created.UTC().Format(time.RFC3339),
		"description":    "Watches the KMS plugins that encrypt a cluster's Secrets, and reports an unhealthy one with its cause.",
		"repository":     homepage,
		"support":        maintainers,
		"olm.skipRange":  ">=0.0.0 <" + o.Version, // every earlier version can be upgraded to this one
		"operatorframework.io/cluster-monitoring":           "true",
		"operatorframework.io/suggested-namespace":          namespace.GetName(),
		"operatorframework.io/suggested-namespace-template": string(template),
	}
	for feature, has := range map[string]bool{
		"disconnected":   true, // it fetches nothing
		"fips-compliant": true, // docs/explain/threat-model.md
		"proxy-aware":    true, // it uses HTTPS_PROXY and NO_PROXY for the API server, its only peer
		"tls-profiles":   true, // /metrics follows that of APIServer/cluster
		"token-auth-aws": false, "token-auth-azure": false, "token-auth-gcp": false,
		"cnf": false, "cni": false, "csi": false,
	} {
		annotations["features.operators.openshift.io/"+feature] = fmt.Sprint(has)
	}
	return annotations, nil
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
	labels := map[string]any{}
	for name, value := range from.GetLabels() {
		labels[name] = value
	}
	return map[string]any{"name": from.GetName(), "label": labels, "spec": spec}, nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
