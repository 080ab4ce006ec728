package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	sigsyaml "sigs.k8s.io/yaml"
)

// taken is when the files of testdata were taken.
var taken = time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)

// command is the program without a kubeconfig and a terminal, with a clock of the test.
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

func TestWithoutACommandHelpIsPrinted(t *testing.T) {
	code, stdout, stderr := command{}.run(t)
	if code != 0 || stderr != "" {
		t.Errorf("%d, %q", code, stderr)
	}
	for _, want := range []string{"status", "watch", "explain", "doctor", "completion", "version", "Exit codes:", "Rights:", "not yet observed", "kubectl kms-health [command]"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestMistakesInTheCommandLineAreExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":    {[]string{"stauts"}, `unknown command "stauts"`},
		"strange command":    {[]string{"frobnicate"}, "unknown command \"frobnicate\" for"},
		"unknown flag":       {[]string{"status", "--nod=a"}, `unknown flag: --nod`},
		"strange flag":       {[]string{"status", "--frobnicate"}, "unknown flag: --frobnicate\n"},
		"strange letter":     {[]string{"status", "-q"}, "unknown shorthand flag: 'q' in -q\n"},
		"argument":           {[]string{"status", "master-0"}, `status takes no argument, such as "master-0"; a node is selected by --node`},
		"no node":            {[]string{"explain"}, "explain takes the name of one node, not 0 names"},
		"mistyped target":    {[]string{"status", "--target=kubeapiserver"}, `is none of kubeapiservers, openshiftapiservers, authentications`},
		"mistyped form":      {[]string{"status", "-o=ymal"}, `is none of json, yaml, wide`},
		"group without user": {[]string{"status", "--as-group=g"}, "--as-group and --as-uid: valid only with --as"},
		"unknown target":     {[]string{"status", "--target=apiserver"}, `--target: "apiserver" is none of kubeapiservers, openshiftapiservers, authentications`},
		"unknown form":       {[]string{"status", "-o=table"}, `--output: "table" is none of json, yaml, wide`},
		"wide is no prose":   {[]string{"explain", "a", "-o=wide"}, `--output: "wide" is none of json, yaml`},
		"no timeout":         {[]string{"status", "--request-timeout=0s"}, "--request-timeout: 0s must be more than 0"},
		"at without files":   {[]string{"status", "--at=2026-05-08T12:34:56Z"}, "--at: valid only with --from-file"},
		"at is no time":      {[]string{"status", "--from-file=-", "--at=noon"}, `--at: "noon" is not an RFC 3339 time`},
		"files are no watch": {[]string{"watch", "--from-file=x"}, "unknown flag: --from-file"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command{}.run(t, tt.args...)
			if code != exitFailed || stdout != "" || !strings.Contains(stderr, tt.want) || !strings.HasPrefix(stderr, "error: ") || !strings.Contains(stderr, "See kubectl kms-health --help") {
				t.Errorf("%d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestWithoutAClusterTheErrorExplainsHowToSelectOne(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"watch"}, {"explain", "a"}} {
		code, stdout, stderr := command{}.run(t, args...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "--kubeconfig") || !strings.Contains(stderr, "--from-file") {
			t.Errorf("%v: %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if code, _, stderr := (command{}).run(t, "status", "--kubeconfig=/nonexistent/file"); code != exitFailed || !strings.Contains(stderr, "/nonexistent/file") {
		t.Errorf("%d, %q", code, stderr)
	}
}

func TestAnUnreachableAPIServerIsAnError(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"explain", "a"}} {
		code, stdout, stderr := command{}.run(t, append(args, "--kubeconfig=testdata/kubeconfig")...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, "error: the API server http://127.0.0.1:1 cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused\nCheck that it runs") {
			t.Errorf("%v: %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

func TestFilesAreEvaluatedAsOfTheNewestReport(t *testing.T) {
	code, stdout, stderr := command{}.run(t, "status", "--from-file=testdata/stale.yaml")
	if code != 2 || !strings.Contains(stdout, "stale") || stderr != "note: evaluated as of 2026-05-08T12:34:50Z, the time of the newest report; --at sets another time\n" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
	if code, stdout, _ := (command{}).run(t, "status", "--from-file=testdata/healthy.yaml", "--at=2026-05-08T12:40:00Z"); code != 2 || strings.Count(stdout, "stale") != 3 {
		t.Errorf("later: %d, %q", code, stdout)
	}
}

func TestAnUnknownNodeOrTargetIsReported(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "master-9"}, `node "master-9" is not known here; known are master-0, master-1, master-2`},
		{[]string{"status", "--node=master-0", "--node=db-17"}, `node "db-17" is not known here; known are master-0, master-1, master-2`},
		{[]string{"status", "--target=authentications"}, "testdata/unhealthy.yaml: no object of authentications found"},
	} {
		code, stdout, stderr := command{}.run(t, append(tt.args, "--from-file=testdata/unhealthy.yaml")...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Contains(stderr, "--help") {
			t.Errorf("%v: %d, %q, %q", tt.args, code, stdout, stderr)
		}
	}
}

func TestErrorsDoNotControlTheTerminal(t *testing.T) {
	for _, args := range [][]string{{"\x1b[2J"}, {"status", "--\x1b[2J"}, {"status", "--node=\x1b[2J", "--from-file=testdata/healthy.yaml"}, {"status", "--from-file=\x1b[2J"}} {
		if code, _, stderr := (command{}).run(t, args...); code != exitFailed || strings.Contains(stderr, "\x1b") || !strings.Contains(stderr, "[2J") {
			t.Errorf("%q: %d, %q", args, code, stderr)
		}
	}
}

// Every writer of a status can choose its text; JSON and YAML leave some of what controls a
// terminal as it is.
func TestJSONAndYAMLDoNotControlTheTerminal(t *testing.T) {
	const hostile = "a\x1b[2J\x7f\u009b2J\u2028\u202e\u200b\U000e0001é\U0001f600\ttrue: \"b\"\n# c"
	c := newInstallation(t, "healthy.yaml")
	setCondition(t, c.find(t, "KubeAPIServer", ""), "KMSPluginsDegraded", "True", hostile, hostile)
	setCondition(t, c.find(t, "KubeAPIServer", ""), "KMSHealthReporting", "True", "AsExpected", "one\ntwo")
	flags := c.serve(t)
	for _, args := range [][]string{{"status"}, {"explain", "master-0"}, {"doctor"}} {
		var values []any
		for form, unmarshal := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(raw []byte, into any) error { return sigsyaml.UnmarshalStrict(raw, into) },
		} {
			_, stdout, stderr := command{}.run(t, slices.Concat(args, flags, []string{"-o", form})...)
			if at := strings.IndexFunc(stdout, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
				t.Errorf("%s %s: %q", args[0], form, stdout[at:min(len(stdout), at+50)])
			}
			var v any
			if err := unmarshal([]byte(stdout), &v); err != nil || !strings.Contains(fmt.Sprint(v), hostile[:len(hostile)-4]) {
				t.Errorf("%s %s: %v, %q, %s", args[0], form, err, stdout, stderr)
			}
			if form == "yaml" && args[0] == "status" && !strings.Contains(stdout, "message: |-\n      one\n      two\n") {
				t.Errorf("a text of several lines is not readable: %s", stdout)
			}
			values = append(values, v)
		}
		if diff := cmp.Diff(values[0], values[1]); diff != "" {
			t.Errorf("%s: %s", args[0], diff)
		}
	}
}

func TestOneNodeIsShownAndEvaluatedByItself(t *testing.T) {
	for node, want := range map[string]int{"master-0": 0, "master-1": 1} {
		code, stdout, _ := command{}.run(t, "status", "--from-file=testdata/unhealthy.yaml", "--node", node)
		if code != want || strings.Count(stdout, "(write)") != 1 {
			t.Errorf("%s: %d, %q", node, code, stdout)
		}
	}
}

func TestAReportersOutputIsOfTheGivenNode(t *testing.T) {
	const line = `[{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T12:34:50Z"}]`
	for want, args := range map[string][]string{
		"- -":              {"status"},
		"- a":              {"status", "--node=a"},
		"kubeapiservers a": {"status", "--node=a", "--target=kubeapiservers"},
	} {
		code, stdout, stderr := command{stdin: line}.run(t, append(args, "--from-file=-")...)
		_, row, _ := strings.Cut(stdout, "\n")
		if cells := strings.Fields(row); code != 0 || strings.Join(cells[:2], " ") != want {
			t.Errorf("%v: %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := (command{stdin: line}).run(t, "explain", "a", "--from-file=-"); code != 0 || !strings.HasPrefix(stdout, "Node a, as of 2026-05-08T12:34:50Z\n") {
		t.Errorf("%d, %q", code, stdout)
	}
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	terminal := func() int { return 100 }
	for name, tt := range map[string]struct {
		command command
		want    bool
	}{
		"no terminal": {command{}, false},
		"a terminal":  {command{terminal: terminal}, true},
		"NO_COLOR":    {command{terminal: terminal, env: map[string]string{"NO_COLOR": "1"}}, false},
		"dumb":        {command{terminal: terminal, env: map[string]string{"TERM": "dumb"}}, false},
	} {
		for _, args := range [][]string{{"status"}, {"explain", "master-0"}} {
			if _, stdout, _ := tt.command.run(t, append(args, "--from-file=testdata/unhealthy.yaml")...); strings.Contains(stdout, "\x1b[") != tt.want {
				t.Errorf("%s: %q", name, stdout)
			}
		}
	}
	if _, stdout, _ := (command{terminal: terminal}).run(t, "status", "-o=json", "--from-file=testdata/unhealthy.yaml"); strings.Contains(stdout, "\x1b") {
		t.Error("JSON is coloured")
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
		"targets of doctor":   {[]string{"doctor", "--target", "kubea"}, "kubeapiservers\n"},
		"forms of doctor":     {[]string{"doctor", "-o", ""}, "json\nyaml\n"},
		"no users":            {[]string{"doctor", "--as", ""}, ":4\n"},
		"nodes":               {[]string{"explain", "--from-file", "testdata/unhealthy.yaml", ""}, "master-0\nmaster-1\nmaster-2\n"},
		"nodes of a flag":     {[]string{"status", "--from-file", "testdata/unhealthy.yaml", "--node", ""}, "master-0\nmaster-1\nmaster-2\n"},
		"one node is enough":  {[]string{"explain", "master-0", ""}, ":4\n"},
		"nothing from stdin":  {[]string{"explain", "--from-file", "-", ""}, ":4\n"},
		"contexts":            {[]string{"status", "--kubeconfig", "testdata/kubeconfig", "--context", ""}, "none\nother\n"},
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
