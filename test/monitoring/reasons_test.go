package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

var deliveredReason = regexp.MustCompile(`(?:kms_health_operator_delivered\{|kms_health_finding\{condition="KMSHealthReporting",)reason=(?:~"([^"]+)"\} == bool|"([^"]+)")`)

// A new reason on which an administrator must act is in no alert until somebody puts it
// there.
func TestEveryDeliveryReasonThatNeedsActionIsInOneAlert(t *testing.T) {
	alerted := map[string]*regexp.Regexp{}
	for _, a := range readAlerts(t) {
		var reasons []string
		for _, m := range deliveredReason.FindAllStringSubmatch(a.Expr, -1) {
			reasons = append(reasons, m[1]+m[2])
		}
		if len(reasons) > 0 {
			alerted[a.Alert] = regexp.MustCompile("^(?:" + strings.Join(reasons, "|") + ")$")
		}
	}
	for _, r := range contract.RollupReasons {
		var in []string
		for name, pattern := range alerted {
			if pattern.MatchString(r.Reason) {
				in = append(in, name)
			}
		}
		if r.NeedsAction != (len(in) == 1) || len(in) > 1 {
			t.Errorf("%s: needs action: %v; in the alerts %v", r.Reason, r.NeedsAction, in)
		}
	}
}

var findingReason = regexp.MustCompile(`kms_health_finding\{[^}]*reason=~?"([^"]+)"`)

// So is a new reason of the roll-up.
func TestEveryReasonOfAFindingIsInAnAlert(t *testing.T) {
	var alerted []*regexp.Regexp
	for _, a := range readAlerts(t) {
		for _, m := range findingReason.FindAllStringSubmatch(a.Expr, -1) {
			alerted = append(alerted, regexp.MustCompile("^(?:"+m[1]+")$"))
		}
	}
	for _, r := range contract.RollupReasons {
		is := slices.ContainsFunc(alerted, func(pattern *regexp.Regexp) bool { return pattern.MatchString(r.Reason) })
		if is != r.Alerted {
			t.Errorf("%s: in an alert: %v, want %v", r.Reason, is, r.Alerted)
		}
	}
}
