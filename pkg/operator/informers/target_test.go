package informers

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// If each report caused a sync of the delivery, a large cluster would have one each second.
func TestOfANewReportOnlyAnotherReporterConcernsTheDelivery(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*operatorstatus.Status, *contract.Entry)
		want   bool
	}{
		"nothing":       {func(*operatorstatus.Status, *contract.Entry) {}, false},
		"a request":     {func(s *operatorstatus.Status, _ *contract.Entry) { s.Requested = "r-1" }, true},
		"a new version": {func(s *operatorstatus.Status, _ *contract.Entry) { s.Version = "2" }, false},
		"the fields of an entry": {func(_ *operatorstatus.Status, e *contract.Entry) {
			e.Status, e.LastChecked, e.Since, e.RoundTrip = contract.Unhealthy, time.Unix(9, 0), time.Unix(9, 0), time.Unix(9, 0)
			e.Requested, e.Lost = "r-1", []string{"k-6"}
		}, false},
		"another reporter": {func(_ *operatorstatus.Status, e *contract.Entry) { e.Reporter = "other" }, true},
		"a condition": {func(s *operatorstatus.Status, _ *contract.Entry) {
			s.Conditions = map[string]operatorstatus.Condition{contract.PluginsDegraded: {Status: operatorstatus.True}}
		}, true},
		"a report more": {func(s *operatorstatus.Status, _ *contract.Entry) {
			s.Reports = append(s.Reports, operatorstatus.Report{Node: "b"})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			status := func() *operatorstatus.Status {
				return &operatorstatus.Status{Version: "1", Reports: []operatorstatus.Report{
					{Node: "a", Entries: []contract.Entry{{KeyID: "1", Status: contract.Healthy, Reporter: "pod"}}}}}
			}
			before, after := status(), status()
			tt.change(after, &after.Reports[0].Entries[0])
			if got := concernsDelivery(before, after); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
