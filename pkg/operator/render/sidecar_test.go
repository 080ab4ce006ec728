package render

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

func render(t *testing.T, in Input) []File {
	t.Helper()
	files, _, err := Render(in)
	must.Succeed(t, err)
	return files
}

func decoded[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// made returns the workload with the reporter: the rendered file, or the pod with the rendered patch applied.
func made(t *testing.T, in Input, file string) string {
	t.Helper()
	text := find(t, render(t, in), file)
	if file != "sidecar/patch.yaml" {
		return text
	}
	of, patch := decoded[map[string]any](t, string(in.Pod)), decoded[map[string]any](t, text)
	namespace := func(o map[string]any) any { return o["metadata"].(map[string]any)["namespace"] }
	must.Equal(t, "the namespace in the patch", namespace(patch), namespace(of))
	whole, err := strategicpatch.StrategicMergeMapPatch(of, patch, appsv1.Deployment{})
	must.Succeed(t, err)
	raw, err := yaml.Marshal(whole)
	must.Succeed(t, err)
	return string(raw)
}

// ownersOf returns the input of an API server whose owner adds the container.
func ownersOf(t *testing.T, pod string) Input {
	t.Helper()
	in := input(t, "openshift-apiserver")
	in.Config.APIServers[1].Deployment = ""
	in.Pod = []byte(pod)
	return in
}

// The reporter is the last container. The rest of the manifest is unchanged, including fields that no Go type has.
func TestManifestGetsTheReporterAndNothingElse(t *testing.T) {
	deployment := string(testdata(t, "deployment.yaml"))
	future := strings.NewReplacer("  replicas: 3", "  replicas: 3\n  futureField: {a: [1, 2.5, 12345678901]}",
		"image: openshift-apiserver:1", "image: openshift-apiserver:1\n        futureField: true").Replace(deployment)
	for name, c := range map[string]struct {
		in   Input
		file string
		pods []string // where they are in the object
	}{
		"a Deployment": {ownersOf(t, future), "sidecar/patch.yaml", []string{"spec", "template"}},
		"a static pod": {inputs(t)["static pod"], "host/static-pod.json", nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := decoded[map[string]any](t, string(c.in.Pod))
			text := made(t, c.in, c.file)
			after := decoded[map[string]any](t, text)
			template := after
			for _, key := range c.pods {
				template = template[key].(map[string]any)
			}
			spec := template["spec"].(map[string]any)
			containers := spec["containers"].([]any)
			if last := containers[len(containers)-1].(map[string]any)["name"]; last != contract.ReporterContainer {
				t.Errorf("the last container is %v", last)
			}
			for _, key := range []string{"containers", "volumes"} {
				spec[key] = slices.DeleteFunc(spec[key].([]any), func(e any) bool {
					name := e.(map[string]any)["name"].(string)
					return name == contract.ReporterContainer || strings.HasPrefix(name, "kms-health-")
				})
			}
			metadata := template["metadata"].(map[string]any)
			if hash := metadata["annotations"].(map[string]any)[contract.ConfigHashAnnotation]; hash == nil || hash == "" {
				t.Errorf("annotations %v", metadata["annotations"])
			}
			delete(metadata, "annotations")
			if d := cmp.Diff(before, after); d != "" {
				t.Errorf("all else (-before +after):\n%s", d)
			}

			c.in.Pod = []byte(text)
			if again := made(t, c.in, c.file); again != text {
				t.Errorf("the second time:\n%s", cmp.Diff(text, again))
			}
		})
	}
}

func TestManifestThatCannotGetTheReporterIsRefused(t *testing.T) {
	deployment := string(testdata(t, "deployment.yaml"))
	pod := "apiVersion: v1\nkind: Pod\n"
	for name, c := range map[string]struct{ pod, want string }{
		"two objects":      {deployment + "---\n" + deployment, "--pod: holds more than one object, must be one"},
		"two JSON objects": {`{"a": 1}{"a": 1}`, "--pod: holds more than one object, must be one"},
		"a list":           {"- a\n", "--pod: json: cannot unmarshal array into Go value "},
		"a wrong type": {pod + "spec: {containers: [{name: 1}]}\n",
			"--pod: json: cannot unmarshal number into Go struct field "},
		"no pods": {"apiVersion: apps/v1\nkind: Deployment\nspec: {}\n",
			"--pod: the pod has no container \"openshift-apiserver\" of the API server"},
		"no socket": {strings.ReplaceAll(deployment, "kmsplugin", "other"),
			`--pod: container "openshift-apiserver" mounts no volume at /var/run/kmsplugin or above it`},
		"another's name": {strings.ReplaceAll(deployment, "containers:\n", "containers:\n      - {name: kms-health}\n"),
			`--pod: container "kms-health" has the name of the reporter's`},
		"a mirror": {pod + "metadata: {annotations: {kubernetes.io/config.mirror: x}}\nspec: {nodeName: a}\n",
			"--pod: mode Sidecar of openshift-apiserver needs the API server's Deployment, or a static pod's manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			files, _, err := Render(ownersOf(t, c.pod))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || files != nil {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// OpenShift's installer of static pods replaces the placeholders anywhere in a file.
func TestStringsOfAStaticPodStayStringsAfterTheInstallersReplacement(t *testing.T) {
	texts := []string{
		"REVISION", "0xREVISION", "REVISIONe1", "a: NODE_NAME", "\"NODE_NAME\"\t\\ \u0085\u2028é<&>",
		"set -e\nfoo: REVISION\n- NODE_NAME\n",
	}
	in := inputs(t)["static pod"]
	pod := decoded[corev1.Pod](t, string(in.Pod))
	pod.Spec.Containers[0].Args = texts
	in.Pod = []byte(contract.Marshal(pod))
	made := find(t, render(t, in), "host/static-pod.json")
	for _, node := range []string{"7", "0x10", "true"} {
		replace := strings.NewReplacer("NODE_NAME", node, "REVISION", "7").Replace
		got := decoded[corev1.Pod](t, replace(made))
		for i, text := range texts {
			if args := got.Spec.Containers[0].Args; args[i] != replace(text) {
				t.Errorf("%q, want %q", args[i], replace(text))
			}
		}
	}
}
