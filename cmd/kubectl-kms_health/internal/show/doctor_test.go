package show

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/doctor"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

func diagnosis(text string) *doctor.Diagnosis {
	return &doctor.Diagnosis{Findings: []doctor.Finding{
		{Check: doctor.Reports, Status: doctor.Error, Target: text, Found: text, Next: []view.Step{{Text: text, Command: text}, {Text: "See the log:", Command: "kubectl logs -n a-namespace-with-a-long-name deployment/kms-health-operator"}}},
		{Check: doctor.Configuration, Status: doctor.Unknown, Found: strings.Repeat("some words ", 40)},
		{Check: doctor.Installed, Status: doctor.OK},
		{Check: "ALaterCheckWithALongName", Status: "LATER", Found: "x"},
	}}
}

func TestADiagnosisFitsTheTerminal(t *testing.T) {
	for _, width := range []int{200, 80, 64, 63, 40, 10, 0, -5} {
		text := Diagnosis(diagnosis("鍵"), Options{Width: width})
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if columns(line) > max(width, 40) && !strings.Contains(line, "kubectl logs") {
				t.Errorf("width %d: %q", width, line)
			}
		}
		if !strings.Contains(text, "deployment/kms-health-operator\n") || !strings.HasSuffix(text, "\n1 ERROR, 1 UNKNOWN, 1 OK\n") {
			t.Errorf("width %d:\n%s", width, text)
		}
	}
}

func TestADiagnosisDoesNotControlTheTerminal(t *testing.T) {
	const evil = "a\x1b[2J\r\u202eb\u0085c\nOK       Installed"
	text := Diagnosis(diagnosis(evil), Options{Width: 80})
	if strings.ContainsAny(text, "\x1b\r\u202e\u0085") || strings.Count(text, "\nOK ") != 1 {
		t.Errorf("%q", text)
	}
	coloured := Diagnosis(diagnosis("x"), Options{Width: 80, Colour: true})
	if bare := strings.NewReplacer(red, "", green, "", yellow, "", plain, "").Replace(coloured); bare == coloured || bare != Diagnosis(diagnosis("x"), Options{Width: 80}) {
		t.Errorf("%q", coloured)
	}
}
