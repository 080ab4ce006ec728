package monitoring

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

const (
	rulesFile = "../../manifests/monitoring/0000_50_kms-health-operator_91_prometheusrule.yaml"
	site      = "https://github.com/kms-health/kms-health/blob/main/docs/operate/runbooks.md#"
)

type alert struct {
	Alert         string            `json:"alert"`
	Expr          string            `json:"expr"`
	For           string            `json:"for"`
	KeepFiringFor string            `json:"keep_firing_for,omitempty"`
	Labels        map[string]string `json:"labels"`
	Annotations   map[string]string `json:"annotations"`
}

type group struct {
	Name  string  `json:"name"`
	Rules []alert `json:"rules"`
}

// readRules returns the groups of the PrometheusRule.
func readRules(t *testing.T) []group {
	t.Helper()
	raw := disk.Read(t, rulesFile)
	var rule struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       struct {
			Groups []group `json:"groups"`
		} `json:"spec"`
	}
	must.Succeed(t, yaml.UnmarshalStrict(raw, &rule))
	return rule.Spec.Groups
}

func readAlerts(t *testing.T) (all []alert) {
	t.Helper()
	for _, g := range readRules(t) {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

// promtool runs promtool in a folder with the rules as rules.yaml. The input is in tests.yaml and on standard input.
func promtool(t *testing.T, input []byte, args ...string) {
	t.Helper()
	program, err := filepath.Abs("../../.tools/prometheus/promtool")
	must.Succeed(t, err)
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("there is no promtool: make promtool")
	}
	rules, err := yaml.Marshal(map[string]any{"groups": readRules(t)})
	must.Succeed(t, err)
	dir := t.TempDir()
	for name, content := range map[string][]byte{"rules.yaml": rules, "tests.yaml": input} {
		disk.Write(t, filepath.Join(dir, name), content)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPrometheusAcceptsTheRules(t *testing.T) {
	promtool(t, nil, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
}

// Each test in the file lists all alerts that fire. So it also checks that no other alert fires.
func TestAlertsOnOurMetrics(t *testing.T) {
	tests := disk.Read(t, "testdata/alerts.yaml")
	promtool(t, tests, "test", "rules", "tests.yaml")
}

// critical alerts need a person who acts at once, by OpenShift's guidelines.
var critical = []string{"KMSNoHealthyPlugin", "KMSNoAPIServerReachesPlugin", "KMSEncryptionNotConfigured"}

func TestAlertsHaveTheFormThatOpenShiftWants(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range readAlerts(t) {
		if seen[a.Alert] || !regexp.MustCompile(`^KMS[A-Za-z]+$`).MatchString(a.Alert) {
			t.Errorf("%s: the name of two alerts, or none", a.Alert)
		}
		seen[a.Alert] = true
		severity := a.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) || (severity == "critical") != slices.Contains(critical, a.Alert) {
			t.Errorf("%s: severity %s", a.Alert, severity)
		}
		if a.For == "" || !strings.HasSuffix(a.Annotations["summary"], ".") || !strings.HasSuffix(a.Annotations["description"], ".") {
			t.Errorf("%+v", a)
		}
		runbook, found := contract.RunbookOf(a.Alert)
		if !found || a.Annotations["runbook_url"] != site+strings.ToLower(runbook.Name) {
			t.Errorf("%s: runbook_url %s, and the runbook %q", a.Alert, a.Annotations["runbook_url"], runbook.Name)
		}
	}
}

// Without keep_firing_for, an alert ends with the operator's process, and fires again only after its whole `for`.
func TestAlertsOnTheOperatorsMetricsBridgeItsRestart(t *testing.T) {
	for i, g := range readRules(t) {
		for _, a := range g.Rules {
			needs := i < 3 && a.Alert != "KMSHealthOperatorAbsent" || a.Alert == "KMSOldKeyStillRead"
			must.Equal(t, a.Alert+" has keep_firing_for", a.KeepFiringFor != "", needs)
		}
	}
}

// Times in series are by the clocks of other machines, which may be hours from that of Prometheus. So what an alert is
// about is a duration, or whether a time changes.
func TestNoAlertComparesATimeWithPrometheusClock(t *testing.T) {
	for _, a := range readAlerts(t) {
		if clock := regexp.MustCompile(`\btime(stamp)?\(`).FindString(a.Expr + a.Annotations["description"]); clock != "" {
			t.Errorf("%s uses %s)", a.Alert, clock)
		}
	}
}

var alertRow = regexp.MustCompile(`(?m)^- \[(\w+)\]\(\.\./operate/runbooks\.md#(\w+)\) \((\w+), ([^)]+)\)$`)

// The page of alerts must list all alerts, in their order, with their runbooks. Each runbook must be for an existing
// alert.
func TestReferenceAndRunbooksHaveEveryAlert(t *testing.T) {
	var want, got []string
	alerts := map[string]bool{}
	for _, a := range readAlerts(t) {
		alerts[a.Alert] = true
		runbook, _ := contract.RunbookOf(a.Alert)
		want = append(want, strings.Join([]string{a.Alert, strings.ToLower(runbook.Name), a.Labels["severity"], a.For}, " | "))
	}
	page := disk.Read(t, "../../docs/reference/alerts.md")
	for _, m := range alertRow.FindAllStringSubmatch(string(page), -1) {
		got = append(got, strings.Join(m[1:], " | "))
	}
	must.Equal(t, "docs/reference/alerts.md", strings.Join(got, "\n"), strings.Join(want, "\n"))
	for _, g := range contract.RunbookGroups {
		for _, r := range g.Rows {
			for _, name := range append(r.Alerts, r.Name) {
				if strings.HasPrefix(name, "KMS") && !alerts[name] {
					t.Errorf("%s: the runbook of an alert that does not exist", name)
				}
			}
		}
	}
}
