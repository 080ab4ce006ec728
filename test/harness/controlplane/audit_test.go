package controlplane

import (
	"os"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func TestParseAudit(t *testing.T) {
	event := func(id, user string) string {
		return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"` + id + `","user":{"username":"` + user + `"}}`
	}
	one, two, three := event("1", "a"), event("2", "b"), event("3", "a")
	for name, test := range map[string]struct {
		log     string
		filters []AuditFilter
		want    []string
		err     string
	}{
		"empty":                  {},
		"all, in order":          {log: one + "\n" + two + "\n", want: []string{"1", "2"}},
		"of one user":            {log: one + "\n" + two + "\n" + three + "\n", filters: []AuditFilter{ByUser("a")}, want: []string{"1", "3"}},
		"all filters must pass":  {log: one + "\n" + three + "\n", filters: []AuditFilter{ByUser("a"), ByUser("b")}},
		"half a last line":       {log: one + "\n" + two[:30], want: []string{"1"}},
		"whole but unterminated": {log: one + "\n" + two, want: []string{"1"}},
		"a stump, then an event": {log: one + "\n" + two[:30] + three + "\n", want: []string{"1", "3"}},
		"empty lines":            {log: "\n" + one + "\n\n", want: []string{"1"}},
		"rubbish":                {log: one + "\n" + "rubbish\n", err: "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := parseAudit([]byte(test.log), nil, test.filters...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %v, not an error with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := auditIDs(events); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A log that grows is read on from where it was read to, and a tail of it has
// nothing of what was there before.
func TestEventsOfAUserAreReadOnce(t *testing.T) {
	c := &ControlPlane{dir: t.TempDir(), options: Options{Audit: true}}
	line := func(id, user string) string {
		return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":"get","auditID":"` + id + `","user":{"username":"` + user + `"}}` + "\n"
	}
	if err := os.WriteFile(c.AuditLog(), []byte(line("0", "a")+line("1", "a")[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	tail, err := c.AuditTail()
	if err != nil {
		t.Fatal(err)
	}
	two := line("2", "a")
	for _, step := range []struct {
		append string
		want   []string
	}{
		{line("1", "a")[20:] + line("x", "b") + two[:30], []string{"1"}},
		{two[30:], []string{"1", "2"}},
		{"", []string{"1", "2"}},
		{line("y", "b") + line("3", "a"), []string{"1", "2", "3"}},
	} {
		log, err := os.OpenFile(c.AuditLog(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.WriteString(step.append); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		none, err := tail.ByUser("a", func(*auditv1.Event) bool { return false })
		if err != nil || len(none) > 0 {
			t.Errorf("filtered: %v, %v", auditIDs(none), err)
		}
		events, err := tail.ByUser("a")
		if got := auditIDs(events); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("got %v, want %v; %v", got, step.want, err)
		}
		whole, err := c.AuditEventsByUser("a")
		if got, want := auditIDs(whole), append([]string{"0"}, step.want...); err != nil || !slices.Equal(got, want) {
			t.Errorf("the whole log: got %v, want %v; %v", got, want, err)
		}
	}
}

func auditIDs(events []auditv1.Event) []string {
	var ids []string
	for _, event := range events {
		ids = append(ids, string(event.AuditID))
	}
	return ids
}
