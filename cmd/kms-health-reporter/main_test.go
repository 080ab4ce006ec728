package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// call runs the command until it exits.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	disk.Write(t, path, []byte(text))
	return path
}

const head = "apiVersion: kmshealth.openshift.io/v1alpha1\nkind: ReporterConfiguration\n"

// plugin starts a plugin, keyID 1, and returns a file with more and the plugin.
func plugin(t *testing.T, more string) (*kmsplugin.Plugin, string) {
	t.Helper()
	dir := program.SocketDir(t)
	p := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + dir + "/kms-1.sock", StateDir: dir + "/state"})
	return p, file(t, head+more+"plugins: [{endpoint: '"+p.Endpoint()+"', role: Write}]\n")
}

func TestFlagsThatCannotBeParsedEndIt(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":  {[]string{"--intervall=5s"}, "unknown flag: --intervall"},
		"argument":      {[]string{"config.yaml"}, `unexpected argument "config.yaml"`},
		"node":          {[]string{"--node-name=NODE_NAME"}, `--node-name (or $KMS_HEALTH_NODE): "node_name" is not the name of a node`},
		"two modes":     {[]string{"--once", "--validate"}, "only one can be used"},
		"lost output":   {[]string{"--once", "--output=-"}, "without --output"},
		"lost samples":  {[]string{"--once", "--state=x"}, "and --state"},
		"output file":   {[]string{"--output=a"}, `--output: "a" must be -, which is standard output`},
		"stdin":         {[]string{"--config=-"}, "error: --config: standard input is read by --validate and --once only"},
		"empty config":  {[]string{"--config="}, "--config: is empty"},
		"missing value": {[]string{"--config"}, "flag needs an argument: --config"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, tt.args...)
			if code != reporter.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || !strings.Contains(stderr, "--help") {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

// Without a failing exit code a script continues with an empty file.
func TestOutputThatCannotBeWrittenFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must.Succeed(t, err)
	defer full.Close()
	_, config := plugin(t, "")
	for name, tt := range map[string]struct {
		args []string
		code int
	}{
		"help":     {[]string{"--help"}, reporter.ExitUsage},
		"version":  {[]string{"--version"}, reporter.ExitUsage},
		"sample":   {[]string{"--print-defaults"}, reporter.ExitUsage},
		"validate": {[]string{"--validate", "--config", config}, reporter.ExitUsage},
		"once":     {[]string{"--once", "--config", config}, reporter.ExitNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(tt.args, full, &stderr); code != tt.code || strings.Count(stderr.String(), "no space left on device") != 1 {
				t.Errorf("%d, want %d: %q", code, tt.code, stderr.String())
			}
		})
	}
}

func TestVerbosityOfTheLog(t *testing.T) {
	defer func() { _, _ = parseFlags([]string{"-v=0"}, os.Getenv) }()
	for level, want := range map[string]bool{"1": false, "2": true} {
		if _, err := parseFlags([]string{"-v", level}, os.Getenv); err != nil || klog.V(2).Enabled() != want {
			t.Errorf("-v %s: level 2 is logged: %v, %v", level, !want, err)
		}
	}
}

func TestFileIsReadFromStandardInput(t *testing.T) {
	before := os.Stdin
	os.Stdin, _ = os.Open(file(t, head+"plugins: []\n"))
	defer func() { os.Stdin = before }()
	code, stdout, stderr := call(t, "--validate", "--config", "-")
	if code != reporter.ExitOK || stdout == "" || stderr != "" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestNodeIsTakenFromTheEnvironment(t *testing.T) {
	environment := func(name string) string {
		if name == "KMS_HEALTH_NODE" {
			return "from-env"
		}
		return ""
	}
	for want, args := range map[string][]string{"from-env": nil, "from-flag": {"--node-name=from-flag"}, "a-host": {"--node-name=A-Host"}} {
		if o, err := parseFlags(args, environment); err != nil || o.Node != want {
			t.Errorf("%q, %v", o.Node, err)
		}
	}
}

func TestHelpVersionAndDefaults(t *testing.T) {
	for flag, want := range map[string][]string{
		"--help":           {"--config", "--node-name", "--output", "--once", "--validate", "--print-defaults", "--version", "Exit codes:"},
		"--version":        {"kms-health-reporter "},
		"--print-defaults": {string(v1alpha1.ReporterSample)},
	} {
		code, stdout, stderr := call(t, flag)
		if code != reporter.ExitOK || stderr != "" {
			t.Errorf("%s: %d, %q", flag, code, stderr)
		}
		for _, text := range want {
			if !strings.Contains(stdout, text) {
				t.Errorf("%s: no %s", flag, text)
			}
		}
	}
}

func TestValidatePrintsTheEffectiveConfigurationOrEveryMistake(t *testing.T) {
	good := file(t, head+"plugins: [{endpoint: 'unix:///run/kms-1.sock', role: Write}]\n")
	code, stdout, stderr := call(t, "--validate", "--config", good)
	effective, ok := strings.CutPrefix(stdout, "ok\n---\n")
	if code != reporter.ExitOK || !ok || stderr != "" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	if c, err := v1alpha1.DecodeReporter([]byte(effective)); err != nil || c.Probe.Interval.Duration != contract.DefaultInterval {
		t.Errorf("%v in %s", err, effective)
	}

	bad := file(t, head+"probe: {interval: 1ns}\nfoo: 1\n")
	code, stdout, stderr = call(t, "--validate", "--config", bad)
	if n := strings.Count(stderr, "error: "+bad+": "); code != reporter.ExitNotOK || stdout != "" || n != 3 || strings.Count(stderr, "\n") != n {
		t.Errorf("%d, %q: %d lines that begin with error and the file, want one for each of 3 mistakes: %s", code, stdout, n, stderr)
	}

	if code, _, stderr := call(t, "--validate", "--config", "/no/such/file"); code != reporter.ExitUsage || !strings.Contains(stderr, "/no/such/file") || !strings.Contains(stderr, "no such file or directory") {
		t.Errorf("%d, %q", code, stderr)
	}
}

func TestOnceShowsTheResultByItsExitCode(t *testing.T) {
	p, config := plugin(t, "")
	code, stdout, stderr := call(t, "--once", "--config", config)
	entries, err := contract.DecodeMessage(strings.TrimSpace(stdout))
	if code != reporter.ExitOK || err != nil || len(entries) != 1 || entries[0].KEKID != p.KeyID() || stderr != "" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	must.Succeed(t, p.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy}))
	if code, stdout, _ := call(t, "--once", "--config", config); code != reporter.ExitNotOK || !strings.Contains(stdout, `"status":"unhealthy"`) {
		t.Errorf("%d, %q", code, stdout)
	}
	if code, stdout, stderr := call(t, "--once", "--config", file(t, "nonsense")); code != reporter.ExitUsage || stdout != "" || stderr == "" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestOnceWithoutAnObservationIsNotHealthy(t *testing.T) {
	config := file(t, head+"plugins: []\n")
	code, stdout, stderr := call(t, "--once", "--config", config)
	if want := "error: " + config + ": no plugin was observed: the list of plugins is empty\n"; code != reporter.ExitNoAnswer || stdout != "[]\n" || stderr != want {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}
