//go:build integration

package delivery

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// base returns the lines of the objects for an API server with reporters, in any mode, and of the ConfigMaps that pods
// in more mount.
func base(server apiservers.Server, namespace string, secrets string, more ...string) []string {
	name := "kms-health-reporter-" + server.Name
	var files []string
	for _, line := range more {
		if _, file, mounted := strings.Cut(line, fromConfigMap); mounted {
			files = append(files, configMap(server, namespace, file))
		}
	}
	slices.Sort(files)
	more = append(slices.Compact(files), more...)
	return append([]string{
		"ClusterRole " + name,
		"ClusterRoleBinding " + name + ": " + namespace + "/" + name,
		role(server, secrets),
		"ServiceAccount " + namespace + "/" + name,
	}, more...)
}

// The source of the file in the line of a pod.
const fromAnnotation, fromConfigMap = ", Annotation: ", ", ConfigMap: "

// configMap returns the line of the ConfigMap with a file, such as 1W+2R every 30s.
func configMap(server apiservers.Server, namespace, file string) string {
	set, _, _ := strings.Cut(file, " ")
	var ids []string
	for plugin := range strings.SplitSeq(set, "+") {
		ids = append(ids, plugin[:len(plugin)-1]) // without the role
	}
	return "ConfigMap " + namespace + "/" + setName(server, ids...) + ": " + file
}

func role(server apiservers.Server, secrets string) string {
	return "Role " + server.Namespace + "/kms-health-operator-" + server.Name + ": " + secrets
}

// idle returns the lines of the objects for an API server whose KMS is off.
func idle(server apiservers.Server, secrets string) []string {
	return []string{role(server, secrets), "ClusterRole kms-health-reporter-" + server.Name}
}

func onNodes(format string) []string {
	var lines []string
	for _, node := range fixture.NodeNames {
		lines = append(lines, fmt.Sprintf(format, node))
	}
	return lines
}

// setName returns the name of the ConfigMap of a plugin set with these keys.
func setName(target apiservers.Server, ids ...string) string {
	var plugins []v1alpha1.Plugin
	for _, id := range ids {
		plugins = append(plugins, pluginOf(id))
	}
	return objects.ConfigMapName(target.Name, plugins)
}

// pluginOf returns the plugin for a provider of apiservers.Encryption.
func pluginOf(word string) v1alpha1.Plugin {
	return v1alpha1.Plugin{KeyID: strings.TrimSuffix(word, apiservers.Moved), Endpoint: apiservers.Endpoint(word)}
}

// awaitObjects waits until exactly these objects of the operator exist.
func awaitObjects(t *testing.T, step string, want ...string) {
	t.Helper()
	fixture.Eventually(t, step, func() error { return differ(t, want...) })
}

// differ returns an error unless exactly these objects of the operator exist.
func differ(t *testing.T, want ...string) error {
	slices.Sort(want)
	got, err := fixture.Describe(t.Context())
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("there are\n  %s\nmust be\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	return err
}

// snapshot returns the parts of the operator's objects that the operator decides.
func snapshot(t *testing.T, op *fixture.Operator) string {
	t.Helper()
	all, err := fixture.ListMade(t.Context())
	must.Succeed(t, err)
	var parts []string
	for _, o := range all {
		key := fmt.Sprintf("%s %s/%s: ", o.GetKind(), o.GetNamespace(), o.GetName())
		if o.GetLabels()[contract.ManagedByLabel] != contract.OperatorName || slices.ContainsFunc(op.Before, func(s string) bool { return strings.HasPrefix(s, key) }) {
			continue
		}
		if o.GetKind() == "Pod" { // admission may have changed its resources
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
			for _, c := range containers {
				unstructured.RemoveNestedField(c.(map[string]any), "resources")
			}
			_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "containers")
		}
		content := map[string]any{}
		for name, value := range o.Object {
			if name != "metadata" && name != "status" && !(o.GetKind() == "Secret" && name == "data") {
				content[name] = value
			}
		}
		annotations := o.GetAnnotations()
		for _, name := range []string{
			contract.StateAnnotation, "deprecated.daemonset.template.generation",
			"kmshealth.openshift.io/issued-at", "kmshealth.openshift.io/expires-at",
		} {
			delete(annotations, name)
		}
		raw, err := json.Marshal([]any{o.GetLabels(), annotations, content})
		must.Succeed(t, err)
		parts = append(parts, key+string(raw))
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}
