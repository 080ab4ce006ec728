package probe

import (
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
)

// reports probes once, and returns all that was reported.
func reports(t *testing.T, p *Plugin, s Settings) (all []Result) {
	t.Helper()
	p.Probe(t.Context(), s, func(r Result) { all = append(all, r) })
	return all
}

func TestLateAnswerIsQuotedAndChangesNoVerdict(t *testing.T) {
	for fault, want := range map[string]string{
		"slow 700ms; unhealthy vault is sealed":          `the answer came after 1s: healthz "vault is sealed"`,
		"slow 700ms; rpc-error PermissionDenied no role": "the answer came after 1s: Status: PermissionDenied: no role",
		"slow 700ms": `the answer came after 1s: healthz "ok"`,
		"hang":       "gRPC health is answered, so the process works: it probably waits for its KMS",
		"hang all":   "gRPC health gets no answer either: the process hangs",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel() // it waits
			real := start(t)
			for line := range strings.SplitSeq(fault, "; ") {
				set(t, real, line)
			}
			plugin := probed(t, real.Endpoint())
			s := Settings{Timeout: short, Late: 2 * time.Second}
			first := reports(t, plugin, s)
			if len(first) != 2 {
				t.Fatalf("%d reports: %+v", len(first), first)
			}
			for i, detail := range []string{"Status: no answer within 300ms", "Status: no answer within 300ms; " + want} {
				if r := first[i]; r.Status != health.Error || r.Reason != health.Timeout || r.KEKID != "" || r.Detail != detail || r.More != (i == 0) {
					t.Errorf("report %d: %+v, want %q", i, r, detail)
				}
			}
			if took := first[0].Took; took > s.Late/2 {
				t.Errorf("the verdict took %s", took)
			}
			// The diagnosis is part of the next verdict from the start.
			second := reports(t, plugin, s)
			if len(second) != 2 || second[0].Detail != first[1].Detail || second[1].Detail != first[1].Detail {
				t.Errorf("the next probe: %+v", second)
			}
			if err := real.ClearFaults(); err != nil {
				t.Fatal(err)
			}
			if third := reports(t, plugin, s); len(third) != 1 || third[0].Status != health.Healthy {
				t.Errorf("after the fault: %+v", third)
			}
		})
	}
}
