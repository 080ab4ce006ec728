package monitoring

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

var (
	deliveredReason = regexp.MustCompile(`(?:kms_health_operator_delivered\{|kms_health_finding\{condition="KMSHealthReporting",)reason=(?:~"([^"]+)"\} == bool|"([^"]+)")`)
	findingReason   = regexp.MustCompile(`kms_health_finding\{[^}]*reason=~?"([^"]+)"()`)
)

// A new reason on which an administrator must act is in no alert until somebody puts it there, in one alone; so is one
// of the roll-up.
func TestReasonsAreInTheirAlerts(t *testing.T) {
	alerts := func(selector *regexp.Regexp, reason string) (in []string) {
		for _, a := range readAlerts(t) {
			var reasons []string
			for _, m := range selector.FindAllStringSubmatch(a.Expr, -1) {
				reasons = append(reasons, m[1]+m[2])
			}
			if regexp.MustCompile("^(?:" + strings.Join(reasons, "|") + ")$").MatchString(reason) {
				in = append(in, a.Alert)
			}
		}
		return in
	}
	for _, r := range contract.RollupReasons {
		if in := alerts(deliveredReason, r.Reason); len(in) > 1 || r.NeedsAction != (len(in) == 1) {
			t.Errorf("%s: needs action: %v; in the alerts %v", r.Reason, r.NeedsAction, in)
		}
		if in := alerts(findingReason, r.Reason); r.Alerted != (len(in) > 0) {
			t.Errorf("%s: alerted: %v; in the alerts %v", r.Reason, r.Alerted, in)
		}
	}
}
