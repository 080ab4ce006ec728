package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// taken is when the files of testdata were.
var taken = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

// command is the program with nothing of this machine: no kubeconfig, a clock of
// its own, no terminal.
type command struct {
	stdin    string
	terminal func() int
	env      map[string]string
}

func (c command) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", "/nonexistent/kubeconfig")
	var out, errs bytes.Buffer
	code = run(context.Background(), args, environment{
		stdin: strings.NewReader(c.stdin), stdout: &out, stderr: &errs,
		getenv:   func(name string) string { return c.env[name] },
		clock:    clocktesting.NewFakeClock(taken),
		terminal: c.terminal,
	})
	return code, out.String(), errs.String()
}

func TestWithoutACommandThereIsHelp(t *testing.T) {
	code, stdout, stderr := command{}.run(t)
	if code != 0 || stderr != "" {
		t.Errorf("%d, %q", code, stderr)
	}
	for _, want := range []string{"status", "watch", "explain", "completion", "version", "Exit codes:", "Rights:", "not yet observed", "kubectl kms-health [command]"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestMistakesInTheCommandLineSayWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":    {[]string{"stauts"}, `unknown command "stauts"`},
		"unknown flag":       {[]string{"status", "--nod=a"}, "unknown flag: --nod"},
		"argument":           {[]string{"status", "master-0"}, `unknown command "master-0"`},
		"no node":            {[]string{"explain"}, "accepts 1 arg(s), received 0"},
		"unknown target":     {[]string{"status", "--target=apiserver"}, `--target: "apiserver" is none of kubeapiservers, openshiftapiservers, authentications`},
		"unknown form":       {[]string{"status", "-o=table"}, `--output: "table" is none of json, yaml, wide`},
		"wide is no prose":   {[]string{"explain", "a", "-o=wide"}, `--output: "wide" is none of json, yaml`},
		"no timeout":         {[]string{"status", "--request-timeout=0s"}, "--request-timeout: 0s must be more than 0"},
		"at without files":   {[]string{"status", "--at=2026-05-08T12:34:56Z"}, "--at: is of use with --from-file alone"},
		"at is no time":      {[]string{"status", "--from-file=-", "--at=noon"}, `--at: "noon" is not an RFC 3339 time`},
		"files are no watch": {[]string{"watch", "--from-file=x"}, "unknown flag: --from-file"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command{}.run(t, tt.args...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || !strings.Contains(stderr, "See kubectl kms-health --help") {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestWithoutAClusterItSaysHowToNameOne(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"watch"}, {"explain", "a"}} {
		code, stdout, stderr := command{}.run(t, args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, "--kubeconfig") || !strings.Contains(stderr, "--from-file") {
			t.Errorf("%v: %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if code, _, stderr := (command{}).run(t, "status", "--kubeconfig=/nonexistent/file"); code != exitUsage || !strings.Contains(stderr, "/nonexistent/file") {
		t.Errorf("%d, %q", code, stderr)
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if code, stdout, _ := (command{}).run(t, arg); code != 0 || !strings.HasPrefix(stdout, "kubectl-kms_health unknown (go1.") {
			t.Errorf("%d, %q", code, stdout)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, stdout, stderr := (command{}).run(t, "completion", shell); code != 0 || !strings.Contains(stdout, "kubectl-kms_health") {
			t.Errorf("%s: %d, %q", shell, code, stderr)
		}
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"commands":            {[]string{""}, "explain"},
		"targets":             {[]string{"status", "--target", ""}, "kubeapiservers\nopenshiftapiservers\nauthentications\n"},
		"nodes":               {[]string{"explain", "--from-file", "testdata/ill.yaml", ""}, "master-0\nmaster-1\nmaster-2\n"},
		"nodes of a flag":     {[]string{"status", "--from-file", "testdata/ill.yaml", "--node", ""}, "master-0\nmaster-1\nmaster-2\n"},
		"one node is enough":  {[]string{"explain", "master-0", ""}, ":4\n"},
		"nothing from stdin":  {[]string{"explain", "--from-file", "-", ""}, ":4\n"},
		"without any cluster": {[]string{"explain", ""}, ":4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, _ := command{}.run(t, append([]string{"__complete"}, tt.args...)...)
			if code != 0 || !strings.Contains(stdout, tt.want) {
				t.Errorf("%d, %q", code, stdout)
			}
		})
	}
}
