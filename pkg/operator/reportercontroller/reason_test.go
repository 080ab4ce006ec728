package reportercontroller

import (
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
)

func TestMostSevereProblemIsReportedFirst(t *testing.T) {
	const none, tls, refused = contract.NoReporters, contract.TLSProfileInvalid, contract.Refused
	is := func(reason delivery.Reason, message string) delivery.Status {
		return delivery.Status{Reason: reason, Message: message}
	}
	for name, c := range map[string]struct {
		problems []delivery.Status
		want     delivery.Status
	}{
		"one": {[]delivery.Status{is(none, "a")}, is(none, "a")},
		"two of one reason, in the order of their messages": {[]delivery.Status{is(none, "b"), is(none, "a")},
			is(none, "a; b")},
		"one twice": {[]delivery.Status{is(none, "a"), is(none, "a")}, is(none, "a")},
		"the more severe one later": {[]delivery.Status{is(tls, "a"), is(contract.Forbidden, "b")},
			is(contract.Forbidden, "b; TLSProfileInvalid: a")},
		"a problem before progress": {[]delivery.Status{is(contract.Progressing, "a"), is(tls, "b")}, is(tls, "b; Progressing: a")},
		"several of each, each with its name": {[]delivery.Status{is(none, "c"), is(refused, "b"), is(none, "a"), is(refused, "d")},
			is(refused, "b; d; NoReporters: a; NoReporters: c")},
	} {
		before := slices.Clone(c.problems)
		if got := delivery.Worst(c.problems); got != c.want || !slices.Equal(c.problems, before) {
			t.Errorf("%s: %+v; the argument is now %v", name, got, c.problems)
		}
	}
	long := delivery.Worst([]delivery.Status{is(none, strings.Repeat("é", delivery.MaxMessage))})
	if len(long.Message) > delivery.MaxMessage+len("…") || !strings.HasSuffix(long.Message, "é…") {
		t.Errorf("a long message has %d bytes and ends with %q", len(long.Message), long.Message[len(long.Message)-10:])
	}
}
