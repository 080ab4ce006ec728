package render

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

func testdata(t *testing.T, name string) []byte {
	t.Helper()
	return disk.Read(t, filepath.Join("../../../test/testdata", name))
}

func input(t *testing.T, target string) Input {
	t.Helper()
	config, err := v1alpha1.DecodeOperator(testdata(t, "operator.yaml"))
	must.Succeed(t, err)
	return Input{APIServer: target, EncryptionConfig: testdata(t, "encryption-config.yaml"), Input: objects.Input{
		Config: config, Namespace: "kms-health", CA: testdata(t, "ca.crt"), HostFolder: "/etc/kubernetes/kms-health",
	}}
}

func names(files []File) string {
	var all []string
	for _, f := range files {
		all = append(all, f.Name)
	}
	return strings.Join(all, " ")
}

func find(t *testing.T, files []File, name string) string {
	t.Helper()
	for _, f := range files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	t.Fatalf("no %s among %s", name, names(files))
	return ""
}

// wantIn requires texts in a file.
func wantIn(t *testing.T, files []File, name string, texts ...string) {
	t.Helper()
	got := find(t, files, name)
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%s has no %q:\n%s", name, text, got)
		}
	}
}

// runningPod has the sockets in a volume of its own.
const runningPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": "u-1"}, "spec": {"nodeName": "n", ` +
	`"containers": [{"name": "kube-apiserver", "volumeMounts": [{"name": "s", "mountPath": "/var/run/kmsplugin"}]}], ` +
	`"volumes": [{"name": "s", "emptyDir": {}}]}}`

// inputs returns one input for each mode.
func inputs(t *testing.T) map[string]Input {
	t.Helper()
	deployment := input(t, "openshift-apiserver")
	deployment.Pod = testdata(t, "deployment.yaml")
	static := input(t, "kube-apiserver")
	static.Pod = testdata(t, "static-pod.yaml")
	return map[string]Input{
		"DaemonSet": input(t, "kube-apiserver"), "Deployment": deployment,
		"owner's": ownersOf(t, string(testdata(t, "deployment.yaml"))), "static pod": static,
	}
}

func TestFilesAreThoseOfTheDelivery(t *testing.T) {
	all := inputs(t)
	for name, want := range map[string]string{
		"DaemonSet": "10-policy.yaml 20-identity.yaml 40-daemonset-kms-health-reporter-kube-apiserver.yaml",
		"Deployment": "10-policy.yaml 20-identity.yaml " +
			"30-configmap-kms-health-reporter-openshift-apiserver-3940a7a9b1.yaml " +
			"sidecar/patch.yaml",
		"owner's": "10-policy.yaml 20-identity.yaml 30-configmap-kms-health-reporter-openshift-apiserver-3940a7a9b1.yaml " +
			"credentials/kubeconfig sidecar/patch.yaml",
		"static pod": "10-policy.yaml 20-identity.yaml host/config/config.yaml host/config/kubeconfig host/static-pod.json",
	} {
		files := render(t, all[name])
		if got := names(files); got != want {
			t.Errorf("%s: %s", name, got)
		}
		if d := cmp.Diff(files, render(t, all[name])); d != "" {
			t.Errorf("%s: it differs the second time:\n%s", name, d)
		}
		for _, f := range files {
			if root := strings.Contains(f.Note, "it runs as root"); f.Note == "" || root != (f.Name == "host/static-pod.json") {
				t.Errorf("%s: the note of %s is %q", name, f.Name, f.Note)
			}
		}
	}
}

// OpenShift's installer of static pods replaces both placeholders in every file that it writes.
func TestStaticPodIsRightAfterAnInstallersReplacement(t *testing.T) {
	files, node := render(t, inputs(t)["static pod"]), "master-0"
	install := func(name string) []byte {
		return []byte(strings.NewReplacer("REVISION", "7", "NODE_NAME", node).Replace(find(t, files, name)))
	}
	pod := decoded[corev1.Pod](t, string(install("host/static-pod.json")))
	if pod.Labels["revision"] != "7" || pod.Spec.Containers[0].Env[0].Value != node {
		t.Errorf("labels %v, variables %v", pod.Labels, pod.Spec.Containers[0].Env)
	}
	for _, name := range []string{"host/config/config.yaml", "host/config/kubeconfig"} {
		if string(install(name)) != find(t, files, name) {
			t.Errorf("%s contains a placeholder that is replaced", name)
		}
	}
	config, err := v1alpha1.DecodeReporter(install("host/config/config.yaml"))
	must.Succeed(t, err)
	if hash := pod.Annotations[contract.ConfigHashAnnotation]; hash != v1alpha1.PluginSetHash(config.Plugins) {
		t.Errorf("the pod is made for %s", hash)
	}
	wantIn(t, files, "host/config/kubeconfig", "/etc/kms-health/credentials/client/tls.crt", "https://localhost:6443")
}

// On its node's network no name of a Service resolves.
func TestStaticPodWritesToTheAPIServerOfItsNode(t *testing.T) {
	static := func(in *Input) {
		in.Pod, in.Config.APIServers[1].Container = testdata(t, "static-pod.yaml"), "kube-apiserver"
	}
	const local = "server: https://localhost:6443\n    tls-server-name: kubernetes.default.svc\n"
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"a manifest": {static, local},
		"a manifest with a network of its own": {func(in *Input) {
			static(in)
			in.Pod = bytes.Replace(in.Pod, []byte("hostNetwork: true"), []byte("hostNetwork: false"), 1)
		}, "server: https://kubernetes.default.svc\n"},
		"another server": {func(in *Input) {
			static(in)
			in.Config.APIServers[1].Connection = v1alpha1.Connection{Server: "https://b:1", TLSServerName: "c"}
		}, "server: https://b:1\n    tls-server-name: c\n"},
	} {
		in := input(t, "openshift-apiserver") // its mode is Sidecar
		c.change(&in)
		t.Run(name, func(t *testing.T) { wantIn(t, render(t, in), "host/config/kubeconfig", c.want) })
	}
}

// The owner creates the Secret. render writes what it needs, a kubeconfig and a command, but no Secret.
func TestOwnersCredentialsAreAKubeconfigAndACommand(t *testing.T) {
	files := render(t, inputs(t)["owner's"])
	const secret = "kms-health-reporter-openshift-apiserver-credentials"
	wantIn(t, files, "credentials/kubeconfig", "client-certificate: /etc/kms-health/credentials/tls.crt")
	wantIn(t, files, "sidecar/patch.yaml", "secretName: "+secret)
	wantIn(t, files, "20-identity.yaml", "name: system:kms-health-reporter")
	for _, f := range files {
		if f.Name == "credentials/kubeconfig" &&
			!strings.Contains(f.Note, "kubectl create secret generic "+secret+" -n openshift-apiserver ") {
			t.Errorf("%s", f.Note)
		}
		text := string(f.Data)
		if strings.Contains(text, "kind: Secret") || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s has a Secret or a key", f.Name)
		}
		if strings.HasPrefix(f.Name, "30-configmap-") &&
			(strings.Contains(text, "  kubeconfig: ") && strings.Contains(text, "apiVersion: v1\n    kind: Config") ||
				!strings.Contains(text, "kubeconfig: /etc/kms-health/credentials/kubeconfig")) {
			t.Errorf("%s:\n%s", f.Name, text)
		}
	}
}

// If reports go to a KMSHealth, the files contain its CRD first.
func TestKMSHealthIsRenderedWithItsCRD(t *testing.T) {
	for name, pod := range map[string][]byte{"DaemonSet": nil, "static pod": testdata(t, "static-pod.yaml")} {
		in := input(t, "kube-apiserver")
		in.Config.APIServers[0].Resource, in.Pod = v1alpha1.ResourceKMSHealths, pod
		in.Config.APIServers[0].ConfigSource = v1alpha1.ConfigSourceConfigMap
		files := render(t, in)
		if got := names(files); !strings.HasPrefix(got, "00-crd.yaml ") ||
			!strings.Contains(got, " 15-kmshealth-kube-apiserver.yaml ") {
			t.Errorf("%s: %s", name, got)
		}
		file := "host/config/config.yaml"
		if pod == nil {
			file = "30-configmap-kms-health-reporter-kube-apiserver-3940a7a9b1.yaml"
		}
		wantIn(t, files, file, "resource: kmshealths", "name: kube-apiserver")
		wantIn(t, files, "20-identity.yaml", "kmshealths/status")
	}
}

var wrongInputs = map[string]struct {
	change func(*Input)
	want   string
}{
	"which target": {func(in *Input) { in.APIServer = "" },
		"name one of them by --api-server: kube-apiserver, openshift-apiserver"},
	"no such target": {func(in *Input) { in.APIServer = "x" }, `--api-server: the configuration has no "x"`},
	"no plugins":     {func(in *Input) { in.EncryptionConfig = nil }, "--encryption-config: kube-apiserver has no `plugins`"},
	"plugins twice": {func(in *Input) { in.Config.APIServers[0].Plugins = []v1alpha1.Plugin{} },
		"--encryption-config: kube-apiserver has its plugins in `plugins`"},
	"a DaemonSet for a volume of the pod": {func(in *Input) { in.Pod = []byte(runningPod) }, "where no DaemonSet reaches them"},
	"another Deployment": {func(in *Input) {
		in.APIServer, in.Pod = "openshift-apiserver", []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")
	}, `--pod: is Deployment "x", must be "apiserver"`},
	"encrypted ConfigMaps that are mounted": {func(in *Input) {
		in.Config.APIServers[0].ConfigSource = v1alpha1.ConfigSourceConfigMap
		in.EncryptionConfig = bytes.ReplaceAll(in.EncryptionConfig, []byte("secrets"), []byte("configmaps"))
	}, "set configSource: Annotation"},
	"garbage": {func(in *Input) { in.EncryptionConfig = []byte("garbage") }, "--encryption-config: "},
	"no kms": {func(in *Input) {
		in.EncryptionConfig = []byte("{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, " +
			"resources: [{resources: [secrets], providers: [{identity: {}}]}]}")
	}, "it has no kms provider that can be probed"},
	"no CA": {func(in *Input) { in.CA = nil }, "--ca-file: is needed: the API server's CA"},
	"a CA's key": {func(in *Input) {
		in.CA = append(in.CA, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"...)
	}, "holds a PRIVATE KEY"},
	"no PEM": {func(in *Input) { in.CA = []byte("garbage") }, "--ca-file: must be the API server's CA"},
	"another kind": {func(in *Input) { in.Pod = []byte("apiVersion: v1\nkind: Service\n") },
		`--pod: is a "Service" of "v1"`},
	"a relative folder": {func(in *Input) {
		in.Pod, in.HostFolder = []byte("apiVersion: v1\nkind: Pod\n"), "etc"
	}, `--host-folder: "etc" must be the absolute path of a folder`},
	"a folder upwards": {func(in *Input) {
		in.Pod, in.HostFolder = []byte("apiVersion: v1\nkind: Pod\n"), "/a/../b"
	}, `--host-folder: "/a/../b" must be`},
	"Sidecar, no pod": {func(in *Input) { in.APIServer = "openshift-apiserver" },
		"--pod: mode Sidecar of openshift-apiserver needs the API server's Deployment, or a static pod's manifest"},
	"CompanionPod": {func(in *Input) {
		in.Config.APIServers[0].Mode, in.Pod = v1alpha1.ModeCompanionPod, []byte(runningPod)
	}, "API server kube-apiserver: mode CompanionPod needs an operator"},
	"Auto": {func(in *Input) { in.Config.APIServers[0].Mode = v1alpha1.ModeAuto }, "mode Auto needs an operator"},
}

func TestWhatIsMissingOrWrongIsNamed(t *testing.T) {
	for name, c := range wrongInputs {
		in := input(t, "kube-apiserver")
		c.change(&in)
		_, _, err := Render(in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReportersHaveTheUserOfTheGivenPod(t *testing.T) {
	onHost := strings.ReplaceAll(runningPod, `"emptyDir": {}`, `"hostPath": {"path": "/var/run/kmsplugin"}`)
	const status = `, "status": {"containerStatuses": [{"name": "kube-apiserver", "user": {"linux": {"uid": 7, "gid": 8}}}]}}`
	for name, c := range map[string]struct {
		pod  bool
		want string
	}{
		"with a pod":    {true, "7:8 groups 8"},
		"without a pod": {false, "0:0 groups 0 DAC_OVERRIDE"},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs(t)["DaemonSet"]
			if c.pod {
				in.Pod = []byte(strings.TrimSuffix(onHost, "}") + status)
			}
			for _, f := range render(t, in) {
				if strings.HasPrefix(f.Name, "40-") && (!strings.Contains(string(f.Data), contract.APIServerUserVariable+"\n") ||
					!strings.Contains(string(f.Data), "value: "+c.want+"\n")) {
					t.Errorf("%s: not %s:\n%s", f.Name, c.want, f.Data)
				}
			}
		})
	}
}
