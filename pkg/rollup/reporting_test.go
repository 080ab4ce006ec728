package rollup

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// delivered returns a delivery that has been in a state for some seconds.
func delivered(reason, message string, seconds int) Delivery {
	return Delivery{Reason: reason, Message: message, Since: ago(seconds)}
}

// progressing returns a delivery that has been under way for some seconds.
func progressing(seconds int) Delivery { return delivered(contract.Progressing, starting, seconds) }

var mode = delivered(contract.AsExpected, "CompanionPod: in pods", long)
var starting = "1 of 3 reporters are starting"

func found(reason string) map[string]operatorstatus.Condition {
	return map[string]operatorstatus.Condition{contract.HealthReporting: {Type: contract.HealthReporting,
		Status: operatorstatus.False, Reason: reason, Message: "x", LastTransitionTime: ago(long)}}
}

var forbidden = found(contract.Forbidden)

var reportings = []struct {
	name     string
	nodes    []Node
	reports  []Report
	delivery Delivery
	previous map[string]operatorstatus.Condition
	want     string
	message  string
	again    int // the latest deadline, in seconds; 0: not checked
}{
	{"all report, and how", two, ok, mode, nil, observed, "3 nodes report\nCompanionPod: in pods", 0},
	{"the only one reports", aIs(), ok[:1], mode, nil, observed, "1 node reports\nCompanionPod: in pods", 0},
	{"one has not reported yet", two, ok[:2], mode, nil, "Unknown Progressing",
		"node c: not reported yet\nCompanionPod: in pods", 300},
	{"the delivery has a problem, and all report", two, ok, delivered(contract.ConfigMapsEncrypted, "a problem", long),
		nil, "False ConfigMapsEncrypted", "a problem", 0},
	{"a problem is the cause", aIs(overdue), nil, delivered(contract.Forbidden, "a right", 0), nil,
		"False Forbidden", lines("a right", "node a: not reported yet"), 0},
	{"a report is missing, and reports may end", aIs(overdue), nil, delivered(contract.RequestFailed, "a token", 0), nil,
		"False RequestFailed", lines("a token", "node a: not reported yet"), 0},
	{"a rollout does not end, and a report is of another key", two, b(healthy("1", 5)), progressing(300), nil,
		"False ProgressDeadlineExceeded", lines(starting, "node b: not reported yet"), 0},
	{"its Node is not Ready, and it never reported", aIs(overdue, down), nil, mode, nil, "Unknown ReportsMissing",
		"node a: not reported yet; the Node is not Ready\nCompanionPod: in pods", 0},
	{"it is under way", two, ok, progressing(299), nil, "Unknown Progressing", starting, 1},
	{"it is under way, without a change for 5 minutes", two, ok, progressing(300), nil,
		"False ProgressDeadlineExceeded", starting, 0},
	{"it is under way for longer, and a Node is not Ready: no kubelet there starts a pod", bIs(down), ok, progressing(600),
		nil, "Unknown Progressing", starting, 1800},
	{"it is under way for longer, and an API server has just been started again, as after a boot", bIs(replacing(60)), ok,
		progressing(600), nil, "Unknown Progressing", starting, 60},
	{"it is under way for longer, and a Node has not been Ready for longer than is excused", bIs(longDown), ok,
		progressing(600), nil, "False ProgressDeadlineExceeded", starting, 0},
	{"nothing is known of the delivery, and an earlier process had found a problem", two, ok, Delivery{}, forbidden,
		"False Forbidden", "x", 0},
	{"nothing is known of the delivery", two, ok, Delivery{}, nil, observed, "3 nodes report", 0},
	{"the problem is over", two, ok, mode, forbidden, observed, "3 nodes report\nCompanionPod: in pods", 0},
	{"no reporter while Unmanaged", bIs(unattended)[:2], ok[:1], delivered(contract.Unmanaged, "paused", 0), nil,
		"Unknown Unmanaged", lines("node b: has no reporter, and managementState is Unmanaged", "paused"), 0},
	{"Unmanaged, and all report", two, ok, delivered(contract.Unmanaged, "paused", 0), nil, observed,
		"3 nodes report\npaused", 0},
	{"no pod runs", nil, nil, delivered(contract.NoPods, "none shows a socket", 0), nil, "False NoPods",
		"no pod of the API server runs on a node\nnone shows a socket", 0},
	{"no namespace", nil, nil, delivered(contract.NamespaceMissing, "namespace ns does not exist", 0), nil,
		"False NamespaceMissing", "namespace ns does not exist", 0},
	{"no pod has a plugin yet", []Node{noKMS("a")}, nil, delivered(contract.NoPods, "none shows a socket", 0), nil,
		"True NoPlugins", "no pod of the API server has a KMS plugin\nnone shows a socket", 0},
}

func TestReportingHasTheMostSevereReasonOfReportsAndDelivery(t *testing.T) {
	for _, tt := range reportings {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Now: now, Nodes: tt.nodes, Reports: tt.reports, Delivery: tt.delivery, Previous: tt.previous}
			got := Evaluate(&in)
			message := got.Conditions[contract.HealthReporting].Message
			if have := got.is(contract.HealthReporting); have != tt.want || message != tt.message {
				t.Errorf("%s: %q, want %s: %q", have, message, tt.want, tt.message)
			}
			if want := now.Add(time.Duration(tt.again) * time.Second); tt.again > 0 && got.Deadline.After(want) {
				t.Errorf("evaluated again in %s, want in %d s", got.Deadline.Sub(now), tt.again)
			}
		})
	}
}

func TestDeliveryIsReportedWhereNoNodeCanBeEvaluated(t *testing.T) {
	for _, tt := range []struct {
		delivery Delivery
		want     string // empty: nothing is known
	}{
		{Delivery{}, ""},
		{delivered(contract.AsExpected, "CompanionPod: in pods", 0), ""},
		{delivered(contract.Off, "KMS is off", 0), ""},
		{delivered(contract.SourceUnreadable, "pods cannot be listed", 0), "False SourceUnreadable: pods cannot be listed"},
		{delivered(contract.Removing, "the reporters", 299), "Unknown Removing: the reporters"},
		{delivered(contract.Removing, "the reporters", 300), "False ProgressDeadlineExceeded: the reporters"},
	} {
		got := ""
		in := Input{Now: now, Unobserved: true, Delivery: tt.delivery}
		if c := Evaluate(&in).Conditions[contract.HealthReporting]; c.Type != "" {
			got = c.Status + " " + c.Reason + ": " + c.Message
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.delivery, got, tt.want)
		}
	}
}

// Earlier conditions about plugins stay until nodes can be evaluated, unless no node is expected to report.
func TestOtherConditionsStayWhereNoNodeCanBeEvaluated(t *testing.T) {
	earlier := Evaluate(&Input{Now: ago(60), Nodes: abc("2"), Reports: each(unhealthy("2", 65, "sealed"))})
	before := earlier.Conditions
	in := Input{Now: now, Previous: before, Unobserved: true, Delivery: delivered(contract.Forbidden, "a right", 0)}
	got := Evaluate(&in)
	for _, kind := range []string{contract.PluginsDegraded, contract.WriteKeyAgreed} {
		if got.Conditions[kind] != before[kind] {
			t.Errorf("%+v, want %+v", got.Conditions[kind], before[kind])
		}
	}
	in.Previous, in.Delivery = got.Conditions, Delivery{}
	if restarted := Evaluate(&in); !restarted.Same(in.Previous) {
		t.Errorf("while the delivery is not known: %+v", restarted.Conditions)
	}
	in.Previous, in.Delivery = before, delivered(contract.Forbidden, "a right", 0)
	in.Unobserved, in.Off = false, true
	for _, r := range []*Result{got, Evaluate(&in)} {
		if c := r.Conditions[contract.HealthReporting]; c.Reason != contract.Forbidden {
			t.Errorf("%+v", c)
		}
	}
	if off := Evaluate(&in); len(off.Conditions) != 1 {
		t.Errorf("off: %+v", off.Conditions)
	}
}

// Every reason has one row, and a row's statuses fit its kind. Reasons of KMSHealthReporting that need
// action come before its others: the ClusterOperator, and the next process, find them by the condition's reason.
func TestEachReasonHasOneRow(t *testing.T) {
	noAction := ""
	for i, r := range contract.RollupReasons {
		if r.Reporting == operatorstatus.False && !r.NeedsAction {
			noAction = r.Name
		} else if r.NeedsAction && noAction != "" {
			t.Errorf("%s needs action, and is less severe than %s", r.Name, noAction)
		}
		if at := contract.Severity(r.Name); at != i {
			t.Errorf("%s is in rows %d and %d", r.Name, at, i)
		}
		if r.NeedsAction && r.Reporting != operatorstatus.False || r.UnderWay && r.Reporting != operatorstatus.Unknown {
			t.Errorf("%+v", r)
		}
	}
}
