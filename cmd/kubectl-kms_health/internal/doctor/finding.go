package doctor

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// Status of a finding.
type Status string

// The statuses. Unknown: what the check needs could not be read, or does not exist.
const (
	OK      Status = "OK"
	Warning Status = "WARNING"
	Error   Status = "ERROR"
	Unknown Status = "UNKNOWN"
)

// worse are the statuses, the worst first.
var worse = []Status{Error, Warning, Unknown, OK}

// Check is what a finding is about.
type Check string

// The checks, in the order of their findings.
const (
	Installed     Check = "Installed"
	Rights        Check = "Rights"
	Delivery      Check = "Delivery"
	Configuration Check = "Configuration"
	Reports       Check = "Reports"
	Clocks        Check = "Clocks"
	Credentials   Check = "Credentials"
	Keys          Check = "Keys"
	Metrics       Check = "Metrics"
)

// Finding is the result of a check, about one subject.
type Finding struct {
	Check  Check  `json:"check"`
	Status Status `json:"status"`
	// Target is the operator resource that it is about; not set: all of them.
	Target string `json:"target,omitempty"`
	// Nodes are those that it is about; not set: all, or none.
	Nodes []string `json:"nodes,omitempty"`
	// Reason is the cause in one word, for programs: that of a condition or a report, or a
	// constant of this package. Not set: OK, or there is none.
	Reason string `json:"reason,omitempty"`
	Found  string `json:"found"`
	// Next is what to do.
	Next []view.Step `json:"next,omitempty"`
}

// Diagnosis is the output of -o json and -o yaml.
type Diagnosis struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Diagnosis
	// Time is the time of the evaluation.
	Time metav1.Time `json:"time"`
	// Status is the worst of the findings.
	Status   Status    `json:"status"`
	Findings []Finding `json:"findings"`
}

// Evaluate checks a snapshot.
func Evaluate(s *Snapshot) Diagnosis {
	d := Diagnosis{APIVersion: view.APIVersion, Kind: "Diagnosis", Time: metav1.NewTime(s.Now.UTC()), Findings: []Finding{}}
	e := newEvaluation(s)
	for _, check := range []func(*evaluation) []Finding{
		(*evaluation).installed, (*evaluation).rights, (*evaluation).delivery, (*evaluation).configuration,
		(*evaluation).reports, (*evaluation).clocks, (*evaluation).credentials, (*evaluation).keys, (*evaluation).metrics,
	} {
		d.Findings = append(d.Findings, check(e)...)
	}
	d.Status = OK
	for _, f := range d.Findings {
		if slices.Index(worse, f.Status) < slices.Index(worse, d.Status) {
			d.Status = f.Status
		}
	}
	return d
}

// Verdict is that of the worst finding: Unhealthy for an Error or a Warning, CannotTell for
// an Unknown.
func (d *Diagnosis) Verdict() view.Verdict {
	switch d.Status {
	case OK:
		return view.AllHealthy
	case Unknown:
		return view.CannotTell
	default:
		return view.Unhealthy
	}
}

// maxNames is how many names a sentence has.
const maxNames = 5

func nodes(names []string) string {
	word := "nodes "
	if len(names) == 1 {
		word = "node "
	}
	return word + list(names)
}

func keyNames(ids []string) string {
	if len(ids) == 1 {
		return "key " + ids[0]
	}
	return "keys " + list(ids)
}

func list(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return strings.Join(names[:maxNames], ", ") + " and " + plural(more, "more", "more")
	}
	return strings.Join(names, ", ")
}
