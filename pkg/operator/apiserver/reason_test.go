package apiserver

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
)

func TestMostSevereProblemIsReportedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		problems []Status
		want     Status
	}{
		"one": {[]Status{{contract.NoReporters, "a"}}, Status{contract.NoReporters, "a"}},
		"two of one reason, in the order of their messages": {[]Status{{contract.NoReporters, "b"},
			{contract.NoReporters, "a"}}, Status{contract.NoReporters, "a; b"}},
		"one twice": {[]Status{{contract.NoReporters, "a"}, {contract.NoReporters, "a"}},
			Status{contract.NoReporters, "a"}},
		"the more severe one later": {[]Status{{contract.TLSProfileInvalid, "a"}, {contract.Forbidden, "b"}},
			Status{contract.Forbidden, "b; TLSProfileInvalid: a"}},
		"a problem before progress": {[]Status{{contract.Progressing, "a"}, {contract.TLSProfileInvalid, "b"}},
			Status{contract.TLSProfileInvalid, "b; Progressing: a"}},
		"several of each, each with its name": {[]Status{{contract.NoReporters, "c"}, {contract.Refused, "b"},
			{contract.NoReporters, "a"}, {contract.Refused, "d"}}, Status{contract.Refused,
			"b; d; NoReporters: a; NoReporters: c"}},
	} {
		before := len(c.problems)
		first := c.problems[0]
		if got := worst(c.problems); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if len(c.problems) != before || c.problems[0] != first {
			t.Errorf("%s: worst changed its argument: %v", name, c.problems)
		}
	}
	long := worst([]Status{{contract.NoReporters, strings.Repeat("é", maxMessage)}})
	if len(long.Message) > maxMessage+len("…") || !strings.HasSuffix(long.Message, "é…") {
		t.Errorf("a long message has %d bytes and ends with %q", len(long.Message), long.Message[len(long.Message)-10:])
	}
}
