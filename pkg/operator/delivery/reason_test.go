package delivery

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// declaredReasons are the constants of type Reason in the source of this package.
func declaredReasons(t *testing.T) (all []Reason) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, v := range spec.Values {
			value, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Reason(value))
		}
		return true
	})
	if len(all) == 0 {
		t.Fatal("reason.go declares no Reason")
	}
	return all
}

// ranked are all reasons, the most severe first.
func ranked() (all []Reason) {
	for _, p := range properties {
		all = append(all, p.reasons...)
	}
	return all
}

func TestEachReasonHasOneEntryInTheTable(t *testing.T) {
	declared := declaredReasons(t)
	entries := map[Reason]int{}
	for _, r := range ranked() {
		entries[r]++
	}
	for _, r := range declared {
		if entries[r] != 1 {
			t.Errorf("%s has %d entries", r, entries[r])
		}
	}
	if len(ranked()) != len(declared) {
		t.Errorf("%d entries for %d reasons", len(ranked()), len(declared))
	}
	for _, r := range []credentials.Reason{
		credentials.ReasonProgressing, credentials.ReasonAwaitingApproval, credentials.ReasonRequestDenied,
		credentials.ReasonRenewalFailed, credentials.ReasonCredentialsExpired,
	} {
		if entries[Reason(r)] != 1 {
			t.Errorf("%s, a reason of credentials, has %d entries", r, entries[Reason(r)])
		}
	}
}

func TestReasonNeedsActionOrIsUnderWayOrComplete(t *testing.T) {
	class := func(r Reason) string {
		switch {
		case r.NeedsAction() && !r.UnderWay():
			return "needs action"
		case !r.NeedsAction() && r.UnderWay():
			return "under way"
		case !r.NeedsAction():
			return "complete"
		}
		return "both needs action and under way"
	}
	last := 0
	order := []string{"needs action", "under way", "complete"}
	for i, r := range ranked() {
		if r.rank() != i {
			t.Errorf("%s has rank %d, want %d", r, r.rank(), i)
		}
		is := class(r)
		at := slices.Index(order, is)
		if at < last {
			t.Errorf("%s (%s) is listed after less severe reasons", r, is)
		}
		last = max(last, at)
		if complete := (Status{Reason: r}).Condition() == operatorcr.True; complete != (is == "complete") {
			t.Errorf("%s is %s, and its condition is %s", r, is, Status{Reason: r}.Condition())
		}
		if warning := r.EventType() == corev1.EventTypeWarning; warning != (is == "needs action") {
			t.Errorf("%s is %s, and its Event is of type %s", r, is, r.EventType())
		}
	}
}

func TestMostSevereProblemIsReportedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		problems []Problem
		want     Status
	}{
		"one": {[]Problem{{NoReporters, "a"}}, Status{NoReporters, "a"}},
		"two of one reason, in the order of their messages": {[]Problem{{NoReporters, "b"}, {NoReporters, "a"}}, Status{NoReporters, "a; b"}},
		"one twice":                           {[]Problem{{NoReporters, "a"}, {NoReporters, "a"}}, Status{NoReporters, "a"}},
		"the more severe one later":           {[]Problem{{TLSProfileInvalid, "a"}, {Forbidden, "b"}}, Status{Forbidden, "b; TLSProfileInvalid: a"}},
		"a problem before progress":           {[]Problem{{Progressing, "a"}, {TLSProfileInvalid, "b"}}, Status{TLSProfileInvalid, "b; Progressing: a"}},
		"several of each, each with its name": {[]Problem{{NoReporters, "c"}, {Refused, "b"}, {NoReporters, "a"}, {Refused, "d"}}, Status{Refused, "b; d; NoReporters: a; NoReporters: c"}},
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
	long := worst([]Problem{{NoReporters, strings.Repeat("é", maxMessage)}})
	if len(long.Message) > maxMessage+len("…") || !strings.HasSuffix(long.Message, "é…") {
		t.Errorf("a long message has %d bytes and ends with %q", len(long.Message), long.Message[len(long.Message)-10:])
	}
}
