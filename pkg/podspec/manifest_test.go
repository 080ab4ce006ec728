package podspec

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const podManifest = `# A comment, which is lost.
---
apiVersion: v1
kind: Pod
metadata:
  name: kube-apiserver
  namespace: openshift-kube-apiserver
  uid: 1b4ff7e6
  annotations:
    yes: "no"
    octal: "0644"
    number: "1e3"
    nothing: "null"
    lines: "a\nb: c\n"
  futureField: {a: [1, 2.5, null]}
spec:
  hostNetwork: true
  futureField: 12345678901
  containers:
  - name: kube-apiserver
    image: example.com/apiserver
    futureField: true
    volumeMounts:
    - {name: kms-sockets, mountPath: /var/run/kmsplugin, futureField: x}
    - {name: resource-dir, mountPath: /etc/kubernetes/static-pod-resources}
  volumes:
  - {name: resource-dir, hostPath: {path: /etc/kubernetes/static-pod-resources/kube-apiserver-pod-REVISION}}
  - {name: kms-sockets, emptyDir: {futureField: 1}}
status: {}
`

const deploymentManifest = `{
	"apiVersion": "apps/v1",
	"kind": "Deployment",
	"metadata": {"name": "apiserver", "annotations": {"a": "b"}},
	"spec": {
		"futureField": 1,
		"template": {
			"metadata": {"labels": {"app": "x"}},
			"spec": {
				"containers": [{
					"name": "api", "image": "i", "futureField": {},
					"volumeMounts": [{"name": "s", "mountPath": "/var/run/kmsplugin"}]
				}],
				"volumes": [{"name": "s", "hostPath": {"path": "/run/kms"}}]
			}
		}
	}
}
`

func injectManifest(t *testing.T, manifest string, o Options) string {
	t.Helper()
	out, err := InjectManifest([]byte(manifest), o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// removeOursFromTree removes what an injection added, by the reporter's names.
func removeOursFromTree(t *testing.T, tree map[string]any) {
	t.Helper()
	p, err := podOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	spec := p.object["spec"].(map[string]any)
	for _, key := range []string{"containers", "volumes"} {
		list := slices.DeleteFunc(spec[key].([]any), func(e any) bool {
			name := e.(map[string]any)["name"].(string)
			return slices.Contains([]string{ContainerName, ConfigVolume, CredentialsVolume, NoTokenVolume}, name)
		})
		if spec[key] = list; len(list) == 0 {
			delete(spec, key)
		}
	}
	unstructured.RemoveNestedField(p.object, "metadata", "annotations", ConfigHashAnnotation)
	if annotations, _, _ := unstructured.NestedMap(p.object, "metadata", "annotations"); len(annotations) == 0 {
		unstructured.RemoveNestedField(p.object, "metadata", "annotations")
	}
}

func TestManifestsKeepUnknownFields(t *testing.T) {
	for name, tt := range map[string]struct {
		manifest string
		options  Options
	}{
		"pod":        {podManifest, inStaticPod()},
		"deployment": {deploymentManifest, inDeployment()},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := decode([]byte(tt.manifest))
			if err != nil {
				t.Fatal(err)
			}
			injected := injectManifest(t, tt.manifest, tt.options)
			if !strings.Contains(injected, "name: kms-health\n") || !strings.Contains(injected, ConfigHashAnnotation+": abc\n") {
				t.Errorf("nothing was injected:\n%s", injected)
			}
			after, err := decode([]byte(injected))
			if err != nil {
				t.Fatal(err)
			}
			removeOursFromTree(t, after)
			if d := cmp.Diff(before, after); d != "" {
				t.Errorf("others' parts (-want +got):\n%s", d)
			}
		})
	}
}

func TestAManifestIsInjectedAsItsPodIs(t *testing.T) {
	pod := fromYAML[corev1.Pod](t, injectManifest(t, withoutFuture(podManifest), inStaticPod()))
	want := fromYAML[corev1.Pod](t, withoutFuture(podManifest))
	inject(t, &want.ObjectMeta, &want.Spec, inStaticPod())
	if !apiequality.Semantic.DeepEqual(want, pod) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, pod))
	}
}

// withoutFuture removes the fields that no type has.
func withoutFuture(manifest string) string {
	var lines []string
	for line := range strings.Lines(manifest) {
		if i := strings.Index(line, ", futureField"); i >= 0 {
			line = line[:i] + "}\n"
		}
		line = strings.Replace(line, "{futureField: 1}", "{}", 1)
		if !strings.Contains(line, "futureField") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestAManifestThatNeedsNoChangeIsReturnedUnmodified(t *testing.T) {
	once := injectManifest(t, podManifest, inStaticPod())
	commented := "# By hand.\n" + once
	if got := injectManifest(t, commented, inStaticPod()); got != commented {
		t.Errorf("injected twice:\n%s", cmp.Diff(commented, got))
	}
	o := inStaticPod()
	o.Image = "newer"
	if got := injectManifest(t, once, o); got == once || strings.Count(got, "name: kms-health\n") != 1 {
		t.Errorf("a newer image:\n%s", got)
	}
}

// OpenShift's static pod installer replaces both placeholders anywhere in a manifest
// (library-go, pkg/operator/staticpod/installerpod).
func TestAManifestIsValidAfterTheStaticPodInstaller(t *testing.T) {
	installed := strings.ReplaceAll(injectManifest(t, podManifest, inStaticPod()), "REVISION", "17")
	installed = strings.ReplaceAll(installed, "NODE_NAME", "master-0.example.com")
	tree, err := decode([]byte(installed))
	if err != nil {
		t.Fatal(err)
	}
	p, err := podOf(tree)
	if err != nil {
		t.Fatal(err)
	}

	// The pod as if it had been made for this node and revision.
	o := inStaticPod()
	o.NodeName = "master-0.example.com"
	want := fromYAML[corev1.Pod](t, strings.ReplaceAll(withoutFuture(podManifest), "REVISION", "17"))
	inject(t, &want.ObjectMeta, &want.Spec, o)
	if !apiequality.Semantic.DeepEqual(want.Spec, p.spec) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want.Spec, p.spec))
	}
	if d := cmp.Diff(want.Annotations, p.annotations); d != "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	for _, e := range p.spec.Containers[1].Env {
		if e.Name != ConfigHashVariable {
			t.Errorf("variable %s", e.Name)
		}
	}
}

func TestTheInstallersPlaceholdersAreInNoInjectedField(t *testing.T) {
	o := inStaticPod()
	o.NodeName = ""
	static := injectManifest(t, strings.ReplaceAll(podManifest, "REVISION", "1"), o)
	for name, text := range map[string]string{"static pod": static, "deployment": injectManifest(t, deploymentManifest, inDeployment())} {
		if strings.Contains(text, "NODE_NAME") || strings.Contains(text, "REVISION") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func TestInvalidManifests(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\n"
	for name, tt := range map[string]struct{ manifest, want string }{
		"nothing":           {"# nothing\n---\n", "the manifest is empty, must hold a Pod or a Deployment"},
		"two objects":       {podManifest + "---\n" + podManifest, "the manifest holds more than one object, must be one"},
		"a list":            {"- a\n", "the manifest is not a YAML mapping: "},
		"a field twice":     {pod + "kind: Pod\n", "the manifest is not a YAML mapping: "},
		"no JSON":           {"{", "the manifest is not one JSON object: "},
		"two JSON objects":  {deploymentManifest + deploymentManifest, "the manifest is not one JSON object: "},
		"another kind":      {"apiVersion: apps/v1\nkind: StatefulSet\n", `kind: Invalid value: "apps/v1 StatefulSet": must be a v1 Pod or an apps/v1 Deployment`},
		"no kind":           {"a: b\n", `kind: Invalid value: "": must be a v1 Pod or an apps/v1 Deployment`},
		"no spec":           {pod, "spec: Required value: the pod's containers"},
		"no template":       {"apiVersion: apps/v1\nkind: Deployment\nspec: {}\n", "spec.template: Required value: the Deployment's pods"},
		"no pods":           {"apiVersion: apps/v1\nkind: Deployment\nspec: {template: {}}\n", "spec.template.spec: Required value: the pod's containers"},
		"no list":           {pod + "spec: {containers: {}}\n", "spec: json: cannot unmarshal object into Go struct field PodSpec.containers of type []v1.Container"},
		"no string":         {pod + "spec: {containers: [{name: 1}]}\n", "spec: json: cannot unmarshal number into Go struct field Container.containers.name of type string"},
		"annotations":       {pod + "metadata: {annotations: {a: 1}}\nspec: {containers: [{name: a}]}\n", "annotations of the pod at spec: .metadata.annotations accessor error: "},
		"no container":      {pod + "spec: {containers: []}\n", "spec.containers: Required value: the API server's container"},
		"no socket":         {pod + "spec: {containers: [{name: a}]}\n", `container "a" mounts no volume at /var/run/kmsplugin or above it, `},
		"another container": {strings.ReplaceAll(deploymentManifest, `"name": "api"`, `"name": "kms-health"`), "spec.template.spec.containers[0].name: Invalid value: \"kms-health\": "},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := InjectManifest([]byte(tt.manifest), inDeployment())
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if out != nil {
				t.Errorf("with the error came\n%s", out)
			}
		})
	}
}

func TestStringsWithPlaceholdersStayStringsAfterTheReplacement(t *testing.T) {
	manifest := []byte(`apiVersion: v1
kind: Pod
metadata:
  name: api
  labels: {revision: "REVISION", node: "NODE_NAME", path: /a/REVISION}
spec:
  containers:
  - name: api
    image: i
    args: ["REVISION", "--node=NODE_NAME"]
    env: [{name: REVISION_OF, value: "REVISION"}]
    volumeMounts: [{name: s, mountPath: /run/kms}]
  volumes: [{name: s, emptyDir: {}}]
`)
	out, err := InjectManifest(manifest, Options{Image: "r", ConfigMap: "c", Endpoints: []string{"unix:///run/kms/kms-1.sock"}, NodeName: InstallerNodeName})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(strings.NewReplacer("REVISION", "7", "NODE_NAME", "0x10").Replace(string(out))), pod); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if pod.Labels["revision"] != "7" || pod.Labels["node"] != "0x10" || pod.Labels["path"] != "/a/7" || pod.Spec.Containers[0].Args[0] != "7" || pod.Spec.Containers[0].Env[0].Value != "7" {
		t.Errorf("%s", out)
	}
}

// The installer's replacement in the written YAML must give the same as in the owner's
// JSON, in which every string is quoted.
func TestInstallersReplacementChangesNoOtherText(t *testing.T) {
	long := strings.Repeat("words that an encoder could fold ", 5)
	texts := []string{
		"REVISION", "NODE_NAME", "-REVISION", "+REVISION", "0xREVISION", "REVISIONe1", "1_REVISION", ".REVISION", "REVISION.",
		"REVISION:REVISION", "REVISION ", "'REVISION", "#REVISION", "a: REVISION", "\"NODE_NAME\"\t\\ \u2028é", long + "REVISION", long + "NODE_NAME " + long,
		"set -e\nfoo: REVISION\n- NODE_NAME\nREVISION\nexec x\n", "  a\n REVISION", "installer-text-0",
	}
	pod := &corev1.Pod{Spec: *apiServerPod()}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Spec.Containers[0].Args = texts
	pod.Labels = map[string]string{}
	for _, key := range []string{"revision", "1", "a:b", "it's", "~", "true", "x y"} {
		pod.Labels[key] = "REVISION"
	}
	manifest, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	out := injectManifest(t, string(manifest), inStaticPod())
	for _, node := range []string{"master-0", "7", "0x10", "1e3", "true", "null"} {
		replace := strings.NewReplacer("NODE_NAME", node, "REVISION", "7").Replace
		want, got := fromYAML[corev1.Pod](t, replace(string(manifest))), fromYAML[corev1.Pod](t, replace(out))
		if d := cmp.Diff(want.Spec.Containers[0], got.Spec.Containers[0]); d != "" {
			t.Errorf("node %s (-want +got):\n%s", node, d)
		}
		if d := cmp.Diff(want.Labels, got.Labels); d != "" {
			t.Errorf("node %s (-want +got):\n%s", node, d)
		}
		if reporter := got.Spec.Containers[len(got.Spec.Containers)-1]; reporter.Name != ContainerName || reporter.Args[1] != "--node-name="+node {
			t.Errorf("node %s: %s %v", node, reporter.Name, reporter.Args)
		}
	}
}
