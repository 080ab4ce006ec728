package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

// call runs a command to its end.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

const testdata = "../../test/testdata/"

// fileOf returns a file with a text.
func fileOf(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file.yaml")
	disk.Write(t, path, []byte(text))
	return path
}

// renderArgs is a command that renders a static pod, with more flags.
func renderArgs(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{"render", "--config", testdata + "operator.yaml", "--api-server", "kube-apiserver",
		"--image", "r:1", "--ca-file", testdata + "ca.crt", "--pod", testdata + "static-pod.yaml", "--output-dir", t.TempDir(),
		"--encryption-config", testdata + "encryption-config.yaml"}, more...)
}

func TestExitCodes(t *testing.T) {
	file := func(text string) string { return fileOf(t, text) }
	broken, empty := file("nonsense: true\n"), file("")
	wrong := file("apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\na: 1\n")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, c := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"no command":      {nil, exitOK, ""},
		"version":         {[]string{"--version"}, exitOK, ""},
		"defaults":        {[]string{"print-defaults"}, exitOK, ""},
		"unknown command": {[]string{"walk"}, exitUsage, "kms-health-operator --help"},
		"unknown flag":    {[]string{"start", "--wait"}, exitUsage, "unknown flag: --wait"},
		"argument":        {[]string{"start", "now"}, exitUsage, "now"},
		"broken file":     {[]string{"validate", "--config", broken}, exitFailed, "apiVersion, kind: must be "},
		"every mistake": {[]string{"validate", "--config", wrong}, exitFailed,
			"error: " + wrong + ": unknown field \"a\"\nerror: " + wrong + ": apiServers: Required value"},
		"another argument": {[]string{"validate", "a"}, exitUsage,
			`unknown argument "a": validate takes its files by flags, such as --config FILE`},
		"empty file":       {[]string{"validate", "--config", empty}, exitFailed, "must hold kind OperatorConfiguration"},
		"a directory":      {[]string{"validate", "--config", t.TempDir()}, exitUsage, "is a directory"},
		"missing file":     {[]string{"validate", "--config", "/no/such/file"}, exitUsage, "/no/such/file"},
		"impossible flags": {[]string{"start", "--namespace", "A b", "--config", ""}, exitUsage, `--config: ""`},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, c.args...)
			if code != c.code || !strings.Contains(stderr, c.stderr) || (code == exitOK) != (stdout != "") ||
				(code == exitOK) != (stderr == "") {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestOpenShiftVariableIsChecked(t *testing.T) {
	t.Setenv("IS_OPENSHIFT", "perhaps")
	if code, _, stderr := call(t, "start"); code != exitUsage || !strings.Contains(stderr, `IS_OPENSHIFT: "perhaps"`) {
		t.Errorf("%d, %q", code, stderr)
	}
}

func TestPrintedDefaultsAreValid(t *testing.T) {
	for _, args := range [][]string{{"print-defaults"}, {"print-defaults", "--kubernetes"}} {
		_, sample, _ := call(t, args...)
		file := fileOf(t, sample)
		standardInput(t, file)
		for _, way := range [][]string{{"validate", "--config", file}, {"validate", "--config", "-"}} {
			if code, stdout, stderr := call(t, way...); code != exitOK || !strings.HasPrefix(stdout, "# ok") {
				t.Errorf("%v, %v: %d, %q", args, way, code, stderr)
			}
		}
	}
}

func TestRenderReadsAndWritesFiles(t *testing.T) {
	standardInput(t, testdata+"static-pod.yaml")
	code, stdout, stderr := call(t, renderArgs(t, "--pod", "-")...)
	if code != exitOK || !strings.Contains(stdout, "host/static-pod.json: ") {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	for line := range strings.Lines(stdout) {
		path, note, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if data, err := os.ReadFile(path); err != nil || len(data) == 0 || note == "" {
			t.Errorf("%q: %v", line, err)
		}
	}
	if code, _, stderr := call(t, renderArgs(t, "--pod", "missing")...); code != exitUsage ||
		!strings.Contains(stderr, "missing") {
		t.Errorf("%d, %q", code, stderr)
	}
	code, _, stderr = call(t, renderArgs(t)[:7]...)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	for i, want := range []string{"--output-dir: ", "--encryption-config: ", "--ca-file: "} { // all at once
		if code != exitUsage || len(lines) != 3 || !strings.HasPrefix(lines[i], "error: "+want) {
			t.Fatalf("%d, %q", code, stderr)
		}
	}
}

// Files without the right to the SCC would be refused on OpenShift, long after they were written.
func TestRenderKnowsOpenShiftByTheResource(t *testing.T) {
	const file = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\napiServers:\n" +
		"- {resource: %s, namespace: a, podSelector: {a: b}, mode: DaemonSet, plugins: [" +
		"{endpoint: 'unix:///var/run/kmsplugin/kms-1.sock', role: Write}]}\n"
	for _, tt := range []struct {
		resource, variable string
		want               bool
	}{{"kubeapiservers", "", true}, {"kubeapiservers", "false", false}, {"kmshealths, name: a", "", false}} {
		t.Setenv("IS_OPENSHIFT", tt.variable)
		folder := t.TempDir()
		code, _, stderr := call(t, "render", "--config", fileOf(t, fmt.Sprintf(file, tt.resource)), "--image", "r:1",
			"--ca-file", testdata+"ca.crt", "--output-dir", folder)
		identity, err := os.ReadFile(filepath.Join(folder, "20-identity.yaml"))
		if has := strings.Contains(string(identity), "securitycontextconstraints"); err != nil || has != tt.want {
			t.Errorf("%+v: a right to the SCC is %t: %d, %s, %v", tt, has, code, stderr, err)
		}
	}
}

// Nothing reports the health of such a provider, so render must not omit it silently.
func TestRenderWarnsOfProvidersThatAreNotProbed(t *testing.T) {
	for name, tt := range map[string]struct{ head, second, warning string }{
		"KMS v1 beside v2": {
			"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n",
			`{name: old, endpoint: "unix:///var/run/kmsplugin/a.sock", cachesize: 1000}`,
			"warning: --encryption-config: provider old of secrets is not probed: its apiVersion is not v2 " +
				"(v1 is the default): only a KMS v2 plugin has a Status call\n",
		},
		"all are probed, of the legacy kind": {"apiVersion: v1\nkind: EncryptionConfig\n",
			`{apiVersion: v2, name: old, endpoint: "unix:/var/run/kmsplugin/a.sock"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := fileOf(t, tt.head+"resources:\n- resources: [secrets]\n  providers:\n  - kms: {apiVersion: v2, name: new, "+
				"endpoint: \"unix:///var/run/kmsplugin/b.sock\"}\n  - kms: "+tt.second+"\n")
			code, _, stderr := call(t, renderArgs(t, "--encryption-config", file)...)
			if code != exitOK || stderr != tt.warning {
				t.Errorf("%d, %q, want %q", code, stderr, tt.warning)
			}
		})
	}
}

// Without the warning, admission in the cluster is the first to deny the pods.
func TestFoldersThatTheManifestsDoNotAllowAreWarnedOf(t *testing.T) {
	const head = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: OperatorConfiguration\nimage: r:1\napiServers:\n" +
		"- {resource: kubeapiservers, mode: %s, plugins: [{keyID: a, endpoint: 'unix:///%s/a.sock', role: Write}]}\n"
	for name, tt := range map[string]struct {
		mode, folder string
		warned       bool
	}{
		"another folder":                            {"DaemonSet", "opt/kms", true},
		"a folder of the manifests":                 {"DaemonSet", "run/kmsplugin", false},
		"another folder, which may be in a volume":  {"CompanionPod", "opt/kms", false},
		"another folder, of a pod that is changed":  {"Sidecar", "opt/kms", false},
		"another folder, of a mode that is decided": {"Auto", "opt/kms", true},
	} {
		t.Run(name, func(t *testing.T) {
			file := fileOf(t, fmt.Sprintf(head, tt.mode, tt.folder))
			commands := [][]string{{"validate", "--config", file}}
			if tt.mode == "DaemonSet" {
				commands = append(commands, []string{"render", "--config", file, "--ca-file", testdata + "ca.crt",
					"--output-dir", t.TempDir()})
			}
			for _, args := range commands {
				code, _, stderr := call(t, args...)
				if warned := strings.Contains(stderr, "does not allow the folder /opt/kms"); code != exitOK || warned != tt.warned {
					t.Errorf("%s: %d, %q", args[0], code, stderr)
				}
			}
		})
	}
}

// Without a failing exit code a script continues with an empty file.
func TestOutputThatCannotBeWrittenFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must.Succeed(t, err)
	defer full.Close()
	for name, args := range map[string][]string{
		"help":           {"--help"},
		"help of render": {"render", "--help"},
		"no command":     nil,
		"version":        {"--version"},
		"completion":     {"completion", "bash"},
		"sample":         {"print-defaults"},
		"validate":       {"validate", "--config", testdata + "operator.yaml"},
		"render":         renderArgs(t),
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(args, full, &stderr); code != exitFailed || strings.Count(stderr.String(), "no space left on device") != 1 {
				t.Errorf("%d, %q", code, stderr.String())
			}
		})
	}
}

// standardInput sets the standard input of the test to a file.
func standardInput(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
	before := os.Stdin
	os.Stdin = f
	t.Cleanup(func() { os.Stdin = before; _ = f.Close() })
}

func TestFlagsDefaultToTheEnvironment(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "from-env")
	t.Setenv("REPORTER_IMAGE", "image:1")
	t.Setenv("KUBECONFIG", "/kubeconfig")
	for flag, want := range map[string]string{"namespace": "from-env", "image": "image:1", "kubeconfig": "/kubeconfig"} {
		if got := newStart().Flag(flag).DefValue; got != want {
			t.Errorf("--%s: %q, want %q", flag, got, want)
		}
	}
}
