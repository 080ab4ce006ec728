package reportercontroller

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

func TestMostSevereProblemIsReportedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		problems []delivery.Status
		want     delivery.Status
	}{
		"one": {[]delivery.Status{{Reason: contract.NoReporters, Message: "a"}}, delivery.Status{Reason: contract.NoReporters, Message: "a"}},
		"two of one reason, in the order of their messages": {[]delivery.Status{{Reason: contract.NoReporters, Message: "b"},
			{Reason: contract.NoReporters, Message: "a"}}, delivery.Status{Reason: contract.NoReporters, Message: "a; b"}},
		"one twice": {[]delivery.Status{{Reason: contract.NoReporters, Message: "a"}, {Reason: contract.NoReporters, Message: "a"}},
			delivery.Status{Reason: contract.NoReporters, Message: "a"}},
		"the more severe one later": {[]delivery.Status{{Reason: contract.TLSProfileInvalid, Message: "a"}, {Reason: contract.Forbidden, Message: "b"}},
			delivery.Status{Reason: contract.Forbidden, Message: "b; TLSProfileInvalid: a"}},
		"a problem before progress": {[]delivery.Status{{Reason: contract.Progressing, Message: "a"}, {Reason: contract.TLSProfileInvalid, Message: "b"}},
			delivery.Status{Reason: contract.TLSProfileInvalid, Message: "b; Progressing: a"}},
		"several of each, each with its name": {[]delivery.Status{{Reason: contract.NoReporters, Message: "c"}, {Reason: contract.Refused, Message: "b"},
			{Reason: contract.NoReporters, Message: "a"}, {Reason: contract.Refused, Message: "d"}}, delivery.Status{Reason: contract.Refused,
			Message: "b; d; NoReporters: a; NoReporters: c"}},
	} {
		before := len(c.problems)
		first := c.problems[0]
		if got := delivery.Worst(c.problems); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if len(c.problems) != before || c.problems[0] != first {
			t.Errorf("%s: worst changed its argument: %v", name, c.problems)
		}
	}
	long := delivery.Worst([]delivery.Status{{Reason: contract.NoReporters, Message: strings.Repeat("é", delivery.MaxMessage)}})
	if len(long.Message) > delivery.MaxMessage+len("…") || !strings.HasSuffix(long.Message, "é…") {
		t.Errorf("a long message has %d bytes and ends with %q", len(long.Message), long.Message[len(long.Message)-10:])
	}
}
