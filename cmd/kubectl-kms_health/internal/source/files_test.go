package source

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
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
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		disk.Write(t, path, []byte(text))
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
		"JSON":                 {apiServer, []string{"kubeapiservers a"}, ""},
		"YAML":                 {block, []string{"openshiftapiservers"}, ""},
		"documents":            {"---\n" + block + "---\n---\n" + auth, []string{"authentications a", "openshiftapiservers"}, ""},
		"JSON documents":       {auth + "\n" + apiServer, []string{"authentications a", "kubeapiservers a"}, ""},
		"a List":               {list(auth, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"cluster"}}`, apiServer), []string{"authentications a", "kubeapiservers a"}, ""},
		"a typed list":         {`{"apiVersion":"operator.openshift.io/v1","kind":"KubeAPIServerList","items":[{"metadata":{"name":"cluster"}}]}`, []string{"kubeapiservers"}, ""},
		"a byte order mark":    {"\ufeff" + apiServer, []string{"kubeapiservers a"}, ""},
		"nothing":              {" \n", nil, "is empty"},
		"another kind":         {strings.ReplaceAll(apiServer, "KubeAPIServer", "Storage"), nil, "no resource with reports is in it"},
		"another group's kind": {strings.ReplaceAll(auth, "operator.openshift.io", "config.openshift.io"), nil, "no resource with reports is in it"},
		"another name":         {strings.Replace(apiServer, `"cluster"`, `"other"`, 1), nil, "no resource with reports is in it: expected, in YAML or JSON, kubeapiservers, openshiftapiservers, authentications of operator.openshift.io named cluster"},
		"no object":            {"- a\n- b\n", nil, "cannot unmarshal array"},
		"no YAML":              {"kind: [", nil, "error converting YAML to JSON"},
		"broken later":         {block + "---\nkind: [", nil, "error converting YAML to JSON"},
		"gzip":                 {"\x1f\x8b\x08\x00", nil, "(unpack an archive first)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(in(t, map[string]string{"f": tt.text}), "f")
			taken, err := read(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			must.Succeed(t, err)
			if diff := gocmp.Diff(tt.want, names(taken)); diff != "" {
				t.Error(diff)
			}
			fromStdin, err := ReadFiles("-", strings.NewReader(tt.text), now)
			if diff := gocmp.Diff(names(taken), names(fromStdin)); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

// now is when the files are read.
var now = time.Date(2026, 5, 8, 14, 0, 0, 0, time.UTC)

func read(path string) (*view.Snapshot, error) { return ReadFiles(path, nil, now) }

// names lists the API servers of a snapshot, each with the nodes that report.
func names(taken *view.Snapshot) (all []string) {
	for _, o := range taken.Objects {
		r, is := view.ResourceOf(o)
		name := r.Plural
		for _, report := range operatorstatus.Read(o).Reports {
			name += " " + report.Node
		}
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func TestAFolderIsSearched(t *testing.T) {
	const inside = "operator.openshift.io/"
	const at = "cluster-scoped-resources/" + inside
	const kube, openShift = at + "kubeapiservers/cluster.json", at + "openshiftapiservers/cluster.yaml"
	for name, tt := range map[string]struct {
		files    map[string]string
		want     []string // as names
		problems []string // parts of them
		now      string   // 12:34:50 unless set
	}{
		"by the files' content": {map[string]string{
			"a/b/cluster.yaml": apiServer, "a/b/auth.json": auth, "a/b/other.yaml": strings.ReplaceAll(block, "cluster", "other"),
			"a/b/broken.yaml": "kind: KubeAPIServer\napiVersion: operator.openshift.io/v1: [", "a/b/broken-else.yaml": "nonsense: [",
			"a/b/cluster.yaml.log": block, "reporter.json": report,
		}, []string{"authentications a", "kubeapiservers a"}, []string{"/a/b/broken.yaml: is no resource in YAML or JSON"}, "12:34:55"},
		"of a resource found twice the newer counts": {map[string]string{"1.json": apiServer, "2.json": newer, "3.json": apiServer}, []string{"kubeapiservers a"}, nil, "12:44:50"},
		// A broken file with the path of a resource is not ignored, whatever it contains.
		"a broken resource": {map[string]string{kube: apiServer, openShift: "\"unterminated"}, []string{"kubeapiservers a"}, []string{openShift}, ""},
		"a cut resource, from inside of its folder": {map[string]string{inside + "kubeapiservers/cluster.json": apiServer,
			inside + "openshiftapiservers/cluster.yaml": block[:len(block)/3] + "\n\t: ["}, []string{"kubeapiservers a"}, []string{inside + "openshiftapiservers"}, ""},
		"an empty resource, as of a full disk": {map[string]string{kube: apiServer, openShift: ""}, []string{"kubeapiservers a"}, []string{openShift + ": is empty"}, ""},
		"an empty list":                        {map[string]string{kube: apiServer, "cluster-scoped-resources/kmshealth.openshift.io/kmshealths.yaml": "apiVersion: v1\nitems: []\nkind: List\n"}, []string{"kubeapiservers a"}, nil, ""},
		"a large resource without kind":        {map[string]string{kube: apiServer, openShift: `{"a": "` + strings.Repeat("b", 1<<20) + `"}`}, []string{"kubeapiservers a"}, []string{openShift}, ""},
		"a broken file of another group":       {map[string]string{kube: apiServer, "config.openshift.io/authentications/cluster.yaml": "x: y"}, []string{"kubeapiservers a"}, nil, ""},
		// OpenShift's must-gather has Prometheus's rules and scrape targets, which name this project.
		"files of Prometheus": {map[string]string{kube: apiServer,
			"monitoring/prometheus/rules.json":                           `{"status":"success","data":{"groups":[{"name":"kms-health-plugins"}]}}`,
			"monitoring/prometheus/prometheus-k8s-0/active-targets.json": `{"data":{"activeTargets":[{"labels":{"job":"kms-health-operator"}}]}}`,
			"monitoring/alertmanager/alerts.json":                        `[{"labels":{"namespace":"openshift-kms-health"}}]`,
		}, []string{"kubeapiservers a"}, nil, ""},
		// What the script could not gather may be unhealthy, and so may the rest of what it gathered in part.
		"resources that were not gathered": {map[string]string{kube: apiServer, "kms-health/incomplete.txt": "metrics in Prometheus\nkubeapiservers.operator.openshift.io/cluster\n" +
			"openshiftapiservers.operator.openshift.io/cluster\nkmshealths.kmshealth.openshift.io/\n"}, []string{"kubeapiservers a"},
			[]string{"kubeapiservers.operator.openshift.io/cluster was not gathered, or not all of it", "openshiftapiservers.operator.openshift.io/cluster was not", "kmshealths.kmshealth.openshift.io was not"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(in(t, tt.files))
			taken, err := read(".")
			must.Succeed(t, err)
			if diff := gocmp.Diff(tt.want, names(taken)); diff != "" {
				t.Error(diff)
			}
			if want := cmp.Or(tt.now, "12:34:50"); taken.Now.Format(time.TimeOnly) != want {
				t.Errorf("now %s, want %s", taken.Now, want)
			}
			if len(taken.Problems) != len(tt.problems) {
				t.Errorf("%q, want %q", taken.Problems, tt.problems)
			}
			for i, p := range taken.Problems {
				if !strings.Contains("/"+p.Error(), tt.problems[i]) || len(p.Error()) > 1000 {
					t.Errorf("%q, want %q", p, tt.problems[i])
				}
			}
		})
	}
}

func TestAFolderWithoutResourcesIsAnErrorWithTheExpectedContent(t *testing.T) {
	dir := in(t, map[string]string{"a/nodes.yaml": "kind: NodeList", "pods.log": "", "b/pod.json": "{}"})
	if _, err := read(dir); !errors.Is(err, errNothing) || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	if _, err := read(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A must-gather whose reporters had all ended is not evaluated as of their last report.
func TestAMustGatherIsEvaluatedAsOfItsBeginning(t *testing.T) {
	for timestamp, want := range map[string]string{
		"2026-05-08 15:00:00.5 +0200 CEST m=+0.1\n2026-05-08 15:20:00 +0200 CEST m=+9\n": "13:00:00",
		"2026-05-08 16:00:00 +0300 +03 m=+0.1\n":                                         "13:00:00",
		"2026-05-08 18:45:00.123456789 +0545 +0545 m=+0.1\n":                             "13:00:00", // in Nepal
		"2026-05-08 12:00:00 +0000 UTC m=+0.1\n":                                         "12:34:50", // a report is later
		"yesterday\n":                                                                    "12:34:50",
		strings.Repeat("2026", 9999):                                                     "12:34:50",
		"":                                                                               "12:34:50",
	} {
		dir := in(t, map[string]string{"timestamp": timestamp, "cluster.yaml": apiServer})
		taken, err := read(dir)
		if got := taken.Now.UTC().Format(time.TimeOnly); err != nil || got != want {
			t.Errorf("%.60q: %s, %v", timestamp, got, err)
		}
	}
}

// oc adm inspect gathers one API server's namespaces and logs before the next resource.
func TestResourcesOfAMustGatherAreGatheredMinutesApart(t *testing.T) {
	for began, want := range map[string]rollup.State{
		"2026-05-08 12:34:00 +0000 UTC m=+0.1\n": rollup.Healthy,
		"2026-05-08 12:44:00 +0000 UTC m=+0.1\n": rollup.Stale, // the report was old when gathering began
		"":                                       rollup.Stale, // all files count as read at the same time
	} {
		taken, err := read(in(t, map[string]string{"timestamp": began, "auth.yaml": auth, "cluster.yaml": newer}))
		must.Succeed(t, err)
		status, err := view.Evaluate(taken, "oauth-apiserver")
		if err != nil || status.APIServers[0].Plugins[0].State != want {
			t.Errorf("began %q: %+v, %v, want %s", began, status, err, want)
		}
	}
}

func TestLinksAreNotFollowedButForTheFolderItself(t *testing.T) {
	secret := filepath.Join(in(t, map[string]string{"newer.json": newer}), "newer.json")
	dir := in(t, map[string]string{"cluster.yaml": apiServer})
	link := filepath.Join(t.TempDir(), "link")
	must.Succeed(t, errors.Join(os.Symlink(secret, filepath.Join(dir, "link.yaml")), os.Symlink(dir, link)))
	taken, err := read(link)
	if err != nil || taken.Now.Minute() == 44 || len(taken.Problems) != 1 || !strings.Contains(taken.Problems[0].Error(), "link.yaml: is a link") {
		t.Errorf("%v, %q", err, taken.Problems)
	}
}
