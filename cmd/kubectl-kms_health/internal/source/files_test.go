package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	report    = `[{"keyID":"2","status":"healthy","lastChecked":"2026-05-08T12:34:50Z"}]`
	apiServer = `{"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServer","metadata":{"name":"cluster"},"status":{"conditions":[{"type":"KMSHealthReporter_a","message":"[{\"keyID\":\"2\",\"status\":\"healthy\",\"lastChecked\":\"2026-05-08T12:34:50Z\"}]"}]}}`
)

var (
	auth  = strings.NewReplacer("KubeAPIServer", "Authentication", "12:34:50Z", "12:34:55Z").Replace(apiServer)
	newer = strings.ReplaceAll(apiServer, "12:34:50Z", "12:44:50Z")
	block = "apiVersion: operator.openshift.io/v1\nkind: OpenShiftAPIServer\nmetadata:\n  name: cluster\n"
)

// in writes files into a folder.
func in(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWhatAFileMayBe(t *testing.T) {
	list := func(items ...string) string {
		return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",") + `]}`
	}
	for name, tt := range map[string]struct {
		text string
		want []string // targets, with their nodes
		err  string
	}{
		"JSON":                          {apiServer, []string{"kubeapiservers a"}, ""},
		"YAML":                          {block, []string{"openshiftapiservers"}, ""},
		"documents":                     {"---\n" + block + "---\n---\n" + auth, []string{"openshiftapiservers", "authentications a"}, ""},
		"JSON documents":                {auth + "\n" + apiServer, []string{"kubeapiservers a", "authentications a"}, ""},
		"a List":                        {list(auth, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"cluster"}}`, apiServer), []string{"kubeapiservers a", "authentications a"}, ""},
		"a typed list":                  {`{"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServerList","items":[{"metadata":{"name":"cluster"}}]}`, []string{"kubeapiservers"}, ""},
		"a byte order mark":             {"\ufeff" + apiServer, []string{"kubeapiservers a"}, ""},
		"a reporter's line":             {report, []string{" n"}, ""},
		"a reporter's lines":            {"[]\n" + report + "\n", []string{" n"}, ""},
		"a reporter's lines, in a log":  {"I0508 12:34:56 main.go] \"Starting\"\n" + report + "\nE0508 nonsense\n", []string{" n"}, ""},
		"a reporter's, over lines":      {strings.ReplaceAll(report, ",", ",\n  ") + "\n", []string{" n"}, ""},
		"a reporter without plugins":    {"[]\n", []string{" n"}, ""},
		"a detail that contains a kind": {strings.Replace(report, "}", `,"detail":"apiVersion: v1"}`, 1), []string{" n"}, ""},
		"a reporter's last line, cut":   {report + "\n[{\"keyID\":\"2\",\n", nil, "the last line of a reporter's --output: message is not a JSON array"},
		"a reporter's strange line":     {`[{"keyID":"2","status":"fine"}]`, nil, `[0].status: "fine" is none of`},
		"nothing":                       {" \n", nil, "is empty"},
		"another kind":                  {strings.ReplaceAll(apiServer, "KubeAPIServer", "Storage"), nil, "none of the operator resources is in it"},
		"another group's kind":          {strings.ReplaceAll(auth, "operator.openshift.io", "config.openshift.io"), nil, "none of the operator resources is in it"},
		"another name":                  {strings.Replace(apiServer, `"cluster"`, `"other"`, 1), nil, "expected an object named cluster"},
		"no object":                     {"- a\n- b\n", nil, "none of the operator resources is in it"},
		"no YAML":                       {"kind: [", nil, "document 1 is neither YAML nor JSON"},
		"broken later":                  {block + "---\nkind: [", nil, "document 2 is neither YAML nor JSON"},
		"another archive":               {"PK\x03\x04 and so on", nil, "is an archive of a kind that cannot be read here"},
		"gzip, cut off":                 {"\x1f\x8b\x08\x00", nil, "is not a tar or tar.gz of a folder, or is cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(in(t, map[string]string{"f": tt.text}), "f")
			taken, err := Files{Paths: []string{path}, Node: "n"}.Read()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), path) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, names(taken)); diff != "" {
				t.Error(diff)
			}
			fromStdin, err := Files{Paths: []string{"-"}, Node: "n", Stdin: strings.NewReader(tt.text)}.Read()
			if diff := cmp.Diff(names(taken), names(fromStdin)); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func names(taken Taken) (targets []string) {
	for _, target := range taken.Targets {
		name := target.Name
		for _, r := range target.Resource.Reports {
			name += " " + r.Node
		}
		targets = append(targets, name)
	}
	return targets
}

func TestAFolderIsSearched(t *testing.T) {
	dir := in(t, map[string]string{
		"a/b/cluster.yaml":     apiServer,
		"a/b/auth.json":        auth,
		"a/b/other.yaml":       strings.ReplaceAll(block, "cluster", "other"),
		"a/b/broken.yaml":      "operator.openshift.io/v1 KubeAPIServer: [",
		"a/b/broken-else.yaml": "nonsense: [",
		"a/b/cluster.yaml.log": block,
		"reporter.json":        report,
	})
	taken, err := Files{Paths: []string{dir}}.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kubeapiservers a", "authentications a"}, names(taken)); diff != "" {
		t.Error(diff)
	}
	if want := time.Date(2026, 5, 8, 12, 34, 55, 0, time.UTC); !taken.At.Equal(want) {
		t.Error(taken.At)
	}
	if len(taken.Notes) != 1 || !strings.Contains(taken.Notes[0], filepath.Join("a", "b", "broken.yaml")+": skipped") {
		t.Errorf("%q", taken.Notes)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if taken, err := (Files{Paths: []string{link}}).Read(); err != nil || len(taken.Targets) != 2 {
		t.Errorf("%v, %v", names(taken), err)
	}
}

func TestAFolderWithoutResourcesIsAnErrorWithTheExpectedContent(t *testing.T) {
	dir := in(t, map[string]string{"a/nodes.yaml": "kind: NodeList", "pods.log": "", "b/pod.json": "{}"})
	file := filepath.Join(in(t, map[string]string{"f": apiServer}), "f")
	for _, paths := range [][]string{{dir}, {file, dir}} {
		_, err := Files{Paths: paths}.Read()
		if !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		for _, want := range []string{dir, "2 YAML and JSON files", "named cluster", "KubeAPIServer", "kubeapiservers/cluster.yaml"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in %v", want, err)
			}
		}
	}
	if _, err := (Files{Paths: []string{filepath.Join(dir, "none")}}).Read(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestOfAResourceFoundTwiceTheNewerCounts(t *testing.T) {
	dir := in(t, map[string]string{"1.json": apiServer, "2.json": newer, "3.json": apiServer})
	taken, err := Files{Paths: []string{dir}}.Read()
	if err != nil || len(taken.Targets) != 1 || taken.Targets[0].Newest().Minute() != 44 {
		t.Fatalf("%v, %v", names(taken), err)
	}
	if len(taken.Notes) != 2 || !strings.HasSuffix(taken.Notes[0], "the newer one counts, in "+filepath.Join(dir, "2.json")) || !strings.HasSuffix(taken.Notes[1], filepath.Join(dir, "2.json")) {
		t.Errorf("%q", taken.Notes)
	}
	outputs := in(t, map[string]string{"1": report, "2": report})
	if _, err := (Files{Paths: []string{filepath.Join(outputs, "1"), filepath.Join(outputs, "2")}}).Read(); err == nil || !strings.Contains(err.Error(), "one at a time, with --node") {
		t.Error(err)
	}
}

// A broken file with the path of a resource is not skipped, since that would hide a
// problem.
func TestABrokenResourceOfAMustGatherIsAnError(t *testing.T) {
	const at = "cluster-scoped-resources/operator.openshift.io/openshiftapiservers/cluster.yaml"
	for name, tt := range map[string]struct{ text, want string }{
		"no YAML": {"\"unterminated", at},
		"cut":     {block[:len(block)/3] + "\n\t: [", at},
		"another": {"apiVersion: v1\nkind: Secret\nmetadata: {name: cluster}\n", "holds no object named cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := in(t, map[string]string{"cluster-scoped-resources/operator.openshift.io/kubeapiservers/cluster.json": apiServer, at: tt.text})
			if _, err := (Files{Paths: []string{dir}}).Read(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
	dir := in(t, map[string]string{"cluster-scoped-resources/operator.openshift.io/kubeapiservers/cluster.json": apiServer, "config.openshift.io/authentications/cluster.yaml": "x: y"})
	if _, err := (Files{Paths: []string{dir}}).Read(); err != nil {
		t.Error(err)
	}
}
