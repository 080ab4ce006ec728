//go:build integration

package rollup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// besideWhile is how long our writes are counted, without others and beside them; BESIDE
// sets another time for the latter.
const besideWhile = 10 * time.Second

// besideInterval is the reporters'. On a busy machine a write takes seconds, since the API
// server repeats it for each write of another that comes first, and a report must not become
// stale by that.
const besideInterval = 5 * time.Second

// ourTypes are the conditions of the operator and of three reporters.
var ourTypes = func() []string {
	all := []string{contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed}
	for _, node := range fixture.NodeNames {
		all = append(all, contract.ConditionType(node))
	}
	return all
}()

// Fifty conditions of other managers are written four times a second on the resource that
// our operator and reporters write to: nobody loses anything, and we write no more.
func TestManyOtherWritersOnTheResource(t *testing.T) {
	noisy := besideWhile
	if text := os.Getenv("BESIDE"); text != "" {
		var err error
		if noisy, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	op := fixture.NewOperator(t, "--leader-elect=true")
	reporters := fixture.StartReportingEvery(t, op, nil, besideInterval.String())
	fixture.AwaitNoWrites(t)
	quiet := ourWrites(t, besideWhile)

	writers := startOthers(t, apiservers.Kube)
	seen := watchEveryVersion(t)
	fixture.Eventually(t, "all have written", func() error {
		if n := seen.otherTypes(); n < fifty {
			return fmt.Errorf("%d conditions", n)
		}
		return nil
	})
	before, began := writers.writes.Load(), time.Now()
	loud := ourWrites(t, noisy)
	rate := float64(writers.writes.Load()-before) / time.Since(began).Seconds()
	t.Logf("writes a second: the reporters' %.2f, and %.2f beside others; the operator's %.2f, and %.2f; the others' %.1f, %d conflicts of theirs; %d versions seen",
		quiet.reporters, loud.reporters, quiet.operator, loud.operator, rate, writers.conflicts.Load(), seen.count())
	edge := float64(len(reporters)) / noisy.Seconds() // a write of each may fall into either time
	if loud.reporters > 1.2*quiet.reporters+edge || loud.operator > quiet.operator {
		t.Error("we write more beside others")
	}
	if rate < 1 || writers.conflicts.Load() == 0 {
		t.Errorf("the others wrote %.1f times a second, with %d conflicts", rate, writers.conflicts.Load())
	}
	oneWriteBesideOthers(t, reporters[1])
	seen.report(t)

	removedBesideOthers(t)
	restoredAfterStaleWrites(t, writers)
	writers.stop()
	for _, f := range writers.failed {
		t.Error(f)
	}
	fixture.AwaitHealthy(t)
	fixture.RemoveTarget(t, op, reporters)
}

// rates are of our writes, for each second.
type rates struct{ operator, reporters float64 }

func ourWrites(t *testing.T, while time.Duration) rates {
	t.Helper()
	operator, reported, began := len(fixture.OperatorWrites(t)), len(fixture.WritesOf(t, fixture.ReporterUser)), time.Now()
	time.Sleep(while)
	seconds := time.Since(began).Seconds()
	return rates{
		operator:  float64(len(fixture.OperatorWrites(t))-operator) / seconds,
		reporters: float64(len(fixture.WritesOf(t, fixture.ReporterUser))-reported) / seconds,
	}
}

// oneWriteBesideOthers expects one write of the operator for each change of a plugin, unless
// the API server, on a busy machine, left a report without an answer: that node was silent.
func oneWriteBesideOthers(t *testing.T, reporter *fixture.Reporter) {
	t.Helper()
	plugin := reporter.Plugin
	was := len(fixture.AwaitNoWrites(t))
	before, err := os.ReadFile(reporter.Log)
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"vault is sealed"}}); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitRollUp(t, apiservers.Kube, contract.PluginsDegraded, operatorcr.True, contract.PluginUnhealthy)
	sick := len(fixture.AwaitNoWrites(t))
	if err := plugin.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitHealthy(t)
	writes := fixture.AwaitNoWrites(t)
	log, err := os.ReadFile(reporter.Log)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case sick == was+1 && len(writes) == sick+1:
	case bytes.Contains(log[len(before):], []byte(`result="timeout"`)):
		t.Logf("%d writes, and %d: the API server did not answer a report in time", sick-was, len(writes)-sick)
	default:
		t.Errorf("%d writes, and %d, want 1 each:\n%s", sick-was, len(writes)-sick, fixture.Texts(writes[was:]))
	}
}

// removedBesideOthers expects the removal of a report to succeed while others write.
func removedBesideOthers(t *testing.T) {
	t.Helper()
	fixture.ReportStatus(t, apiservers.Kube, "no-such-node", contract.Healthy)
	began := time.Now()
	fixture.Eventually(t, "the report of a Node that does not exist is removed", func() error {
		if slices.Contains(fixture.NodesOf(fixture.Resource(t, apiservers.Kube)), "no-such-node") {
			return errors.New("it is there")
		}
		return nil
	})
	t.Logf("removed after %s", time.Since(began).Round(time.Millisecond))
}

// restoredAfterStaleWrites removes our conditions, and sets an old value, as clients do that
// write what they read a while before: with its resourceVersion that is a conflict, and
// without one an Update is rejected, but a patch is not.
func restoredAfterStaleWrites(t *testing.T, writers *others) {
	t.Helper()
	old, err := writers.resource.Get(t.Context(), controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	setConditions(old, conditionsBut(old, "KMS"))
	time.Sleep(time.Second)
	if _, err := writers.resource.UpdateStatus(t.Context(), old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with an old resourceVersion: %v", err)
	}
	unversioned := old.DeepCopy()
	unversioned.SetResourceVersion("")
	if _, err := writers.resource.UpdateStatus(t.Context(), unversioned, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update without a resourceVersion: %v", err)
	}

	writers.replaceAll(t, conditionsBut(old, "KMS"))
	awaitRestored(t, "removed")
	now, err := writers.resource.Get(t.Context(), controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conditions := conditionsBut(now, "none")
	for _, c := range conditions {
		fields := c.(map[string]any)
		switch name := fields["type"].(string); {
		case strings.HasPrefix(name, contract.ConditionType("")):
			fields["message"] = "[]"
		case strings.HasPrefix(name, "KMS"):
			fields["status"], fields["reason"], fields["message"] = "Unknown", "Old", "an old value"
		}
	}
	writers.replaceAll(t, conditions)
	awaitRestored(t, "old")
}

// awaitRestored waits until our conditions are as they should be: the operator's at once,
// the reporters' with their next report.
func awaitRestored(t *testing.T, what string) {
	t.Helper()
	began := time.Now()
	fixture.Eventually(t, "the operator's conditions are back", func() error {
		now := fixture.Resource(t, apiservers.Kube).Conditions
		for _, name := range ourTypes[:3] {
			if c := now[name]; c.Type == "" || c.Reason == "Old" {
				return fmt.Errorf("%s: %+v", name, c)
			}
		}
		return nil
	})
	operator := time.Since(began)
	fixture.Eventually(t, "all report again", func() error {
		for _, node := range fixture.NodeNames {
			if !slices.ContainsFunc(fixture.Resource(t, apiservers.Kube).Reports, func(r operatorcr.Report) bool {
				return r.Node == node && r.Ours && len(r.Entries) == 1 && r.Entries[0].Status == contract.Healthy
			}) {
				return fmt.Errorf("%s does not", node)
			}
		}
		return nil
	})
	reporters := time.Since(began)
	t.Logf("%s: the operator's conditions are back after %s, the reporters' after %s", what, operator.Round(time.Millisecond), reporters.Round(time.Millisecond))
	fixture.AwaitHealthy(t)
	o, err := fixture.Client.Resource(controlplane.OperatorGVR(apiservers.Kube.Resource)).Get(t.Context(), controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range wrongOwners(o) {
		t.Errorf("%s: %s", what, wrong)
	}
}

// wrongOwners are fields of our conditions that others own, and of others that we own.
func wrongOwners(o *unstructured.Unstructured) (wrong []string) {
	for _, m := range o.GetManagedFields() {
		if m.FieldsV1 == nil || m.Subresource != "status" {
			continue
		}
		for _, name := range ownedConditions(m.FieldsV1.GetRawBytes()) {
			ours := strings.HasPrefix(m.Manager, "kms-health-")
			if ours != strings.HasPrefix(name, "KMS") || !ours && !strings.HasPrefix(name, m.Manager) && m.Manager != otherPrefix+"Stale" {
				wrong = append(wrong, fmt.Sprintf("%s owns a part of condition %s", m.Manager, name))
			}
		}
	}
	return wrong
}

// ownedConditions are the types of the conditions of a FieldsV1.
func ownedConditions(raw []byte) (all []string) {
	for _, part := range strings.Split(string(raw), `k:{\"type\":\"`)[1:] {
		name, _, _ := strings.Cut(part, `\"`)
		all = append(all, name)
	}
	return all
}

// versions are what was seen of the resource, each of its versions.
type versions struct {
	mu      sync.Mutex
	seen    int
	numbers map[string]int // of the others' conditions
	wrong   []string
}

// watchEveryVersion checks each version of the resource until the test reports.
func watchEveryVersion(t *testing.T) *versions {
	t.Helper()
	v := &versions{numbers: map[string]int{}}
	fixture.WatchObject(t, apiservers.Kube, func(_ time.Time, o *unstructured.Unstructured) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.see(o)
	})
	return v
}

func (v *versions) see(o *unstructured.Unstructured) {
	v.seen++
	there := map[string]bool{}
	for name, c := range operatorcr.ReadConditions(o) {
		there[name] = true
		if !strings.HasPrefix(name, otherPrefix) {
			continue
		}
		number, err := strconv.Atoi(c.Message)
		if err != nil || number < v.numbers[name] || c.Status != "False" {
			v.wrong = append(v.wrong, fmt.Sprintf("%s was written %d times: %+v", name, v.numbers[name], c))
		}
		v.numbers[name] = number
	}
	changing := func(name string) bool { return strings.HasPrefix(name, otherPrefix+"Changing") }
	for name := range v.numbers {
		if !there[name] && !changing(name) {
			v.wrong = append(v.wrong, "without "+name)
		}
	}
	for _, name := range ourTypes {
		if !there[name] {
			v.wrong = append(v.wrong, "without "+name)
		}
	}
	v.wrong = append(v.wrong, wrongOwners(o)...)
}

func (v *versions) otherTypes() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.numbers)
}

func (v *versions) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

// report fails the test for what was wrong until now.
func (v *versions) report(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	slices.Sort(v.wrong)
	wrong := slices.Compact(v.wrong)
	for _, text := range wrong[:min(len(wrong), 20)] {
		t.Error(text)
	}
	if len(wrong) > 0 || v.seen == 0 {
		t.Errorf("%d versions seen, %d problems; conditions: %v", v.seen, len(wrong), slices.Sorted(maps.Keys(v.numbers)))
	}
}
