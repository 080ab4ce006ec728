package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// taken is when the files of testdata were taken.
var taken = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

// kubectl runs the program without a kubeconfig, if not set by a clock of the test.
func kubectl(t *testing.T, e environment, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", "/nonexistent/kubeconfig")
	var out, errs bytes.Buffer
	e.stdin, e.stdout, e.stderr = strings.NewReader(""), &out, &errs
	if e.clock == nil {
		e.clock = clocktesting.NewFakeClock(taken)
	}
	code = run(args, e)
	return code, out.String(), errs.String()
}

func TestHelpAndCompletion(t *testing.T) {
	for args, all := range map[string][]string{
		"":                     {"status ", "completion ", "kubectl kms-health [command]"},
		"status --help":        {"Exit codes:", "Rights:", "or missing", "--context", "--kubeconfig", "--namespace"},
		"__complete explain K": {"KMSPluginsDegraded\n", "KMSOldKeyStillRead\n", "KeysDiffer\n"},
	} {
		code, stdout, stderr := kubectl(t, environment{}, strings.Fields(args)...)
		for _, want := range all {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%q: %d, %q: no %q in\n%s", args, code, stderr, want, stdout)
			}
		}
	}
}

func TestErrorsInTheCommandLineAreExplained(t *testing.T) {
	const file = "--from-file=testdata/healthy.yaml"
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":    {[]string{"preflights"}, `unknown command "preflights"`},
		"unknown flag":       {[]string{"status", "--nod=a"}, "unknown flag: --nod"},
		"two names":          {[]string{"status", "a", "b"}, "accepts at most 1 arg(s), received 2"},
		"unknown format":     {[]string{"status", "-o=table"}, `invalid argument "table" for "-o, --output" flag: must be one of wide, json, yaml`},
		"unknown reason":     {[]string{"explain", "Healthy"}, `"Healthy" is no reason, alert or condition of this version; kubectl kms-health explain lists all`},
		"a wait for a file":  {[]string{"status", "--wait", file}, "--from-file: files do not change"},
		"files, a namespace": {[]string{"status", "--from-file=x", "-n=a"}, "--from-file: files do not change, and any of their namespaces may have the operator, so --wait and -n are not possible"},
		"a time as a name":   {[]string{"status", "--wait", "5m"}, "to wait so long, write --wait=5m"},
		"no time to wait":    {[]string{"status", "--wait=long"}, `invalid argument "long" for "--wait" flag`},
		"no kubeconfig":      {[]string{"status", "--kubeconfig=/nonexistent/file"}, "/nonexistent/file"},
		"not reachable":      {[]string{"status", "--kubeconfig=testdata/kubeconfig"}, "dial tcp 127.0.0.1:1: connect: connection refused\nCheck that the API server runs"},
		"no resource":        {[]string{"status", "--from-file=testdata/wait.txt"}, "--from-file: testdata/wait.txt: is no resource in YAML or JSON"},
		"no endpoints":       {[]string{"stored-keys", "--endpoints="}, `--endpoints: is "", must be one address`},
		"no such file":       {[]string{"status", "--from-file=/nonexistent/file"}, "/nonexistent/file: no such file"},
		"unknown name":       {[]string{"status", "master-9", file}, `no API server and no node "master-9"; known are kube-apiserver, master-0, master-1, master-2`},
		"terminal's control": {[]string{"status", "\x1b[2J", file}, "[2J"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := kubectl(t, environment{}, tt.args...)
			if code != exitFailed || stdout != "" || !strings.HasPrefix(stderr, "error: ") || !strings.Contains(stderr, tt.want) || strings.Contains(stderr, "\x1b") {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

// Without a failing exit code a script continues with an empty file.
func TestOutputThatCannotBeWrittenFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	const healthy, unhealthy = "--from-file=testdata/healthy.yaml", "--from-file=testdata/unhealthy.yaml"
	for name, args := range map[string][]string{
		"help": {"--help"}, "no command": {}, "help of a command": {"status", "--help"}, "version": {"--version"},
		"completion": {"completion", "bash"}, "status": {"status", healthy}, "status of what is unhealthy": {"status", unhealthy}, "status as JSON": {"status", "-o=json", healthy},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := run(args, environment{stdout: full, stderr: &stderr, clock: clocktesting.NewFakeClock(taken)})
			if code != exitFailed || strings.Count(stderr.String(), "no space left on device") != 1 {
				t.Errorf("%d, %q", code, stderr.String())
			}
		})
	}
}
