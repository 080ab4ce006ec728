package monitoring

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"testing"

	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/rollup"
)

var deliveredReason = regexp.MustCompile(`kms_health_operator_delivered\{reason=~?"([^"]+)"\}`)

// A new reason on which an administrator must act is in no alert until somebody puts it
// there.
func TestEveryDeliveryReasonThatNeedsActionIsInOneAlert(t *testing.T) {
	alerted := map[string]*regexp.Regexp{}
	for _, a := range readAlerts(t) {
		if m := deliveredReason.FindStringSubmatch(a.Expr); m != nil {
			alerted[a.Alert] = regexp.MustCompile("^(?:" + m[1] + ")$")
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../pkg/operator/delivery/reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, is := spec.Type.(*ast.Ident); !is || kind.Name != "Reason" {
			return true
		}
		reason := text(spec.Values[0])
		reasons++
		var in []string
		for name, pattern := range alerted {
			if pattern.MatchString(reason) {
				in = append(in, name)
			}
		}
		if needs := delivery.Reason(reason).NeedsAction(); needs != (len(in) == 1) || len(in) > 1 {
			t.Errorf("%s: needs action: %v; in the alerts %v", reason, needs, in)
		}
		return true
	})
	if reasons < 30 {
		t.Errorf("%d reasons", reasons)
	}
}

var findingReason = regexp.MustCompile(`kms_health_finding\{[^}]*reason=~?"([^"]+)"`)

// So is a new reason of the roll-up: all that severities has, but that of reports
// that are still awaited.
func TestEveryReasonOfAFindingIsInAnAlert(t *testing.T) {
	var alerted []*regexp.Regexp
	for _, a := range readAlerts(t) {
		for _, m := range findingReason.FindAllStringSubmatch(a.Expr, -1) {
			alerted = append(alerted, regexp.MustCompile("^(?:"+m[1]+")$"))
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../pkg/rollup/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "severities" {
			return true
		}
		for _, row := range spec.Values[0].(*ast.CompositeLit).Elts {
			reason := row.(*ast.CompositeLit).Elts[0].(*ast.Ident).Name
			reasons++
			is := slices.ContainsFunc(alerted, func(r *regexp.Regexp) bool { return r.MatchString(reason) })
			if want := reason != rollup.AwaitingReports; is != want {
				t.Errorf("%s: in an alert: %v, want %v", reason, is, want)
			}
		}
		return false
	})
	if reasons < 10 {
		t.Errorf("%d reasons", reasons)
	}
}
