package rollup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Alerts use findings, so an excused problem must not be a finding.
func TestFindingsAreThoseOfTheConditions(t *testing.T) {
	ok := each(healthy("2", 5))
	for _, tt := range []struct {
		name    string
		nodes   []Node
		reports []Report
		want    string // condition, reason, node, key
	}{
		{"all healthy", abc("2"), ok, ""},
		{"one unhealthy", abc("2"), but(ok, from("b", unhealthy("2", 5, "sealed"))),
			"KMSPluginsDegraded PluginUnhealthy b 2, KMSWriteKeyAgreed PluginUnhealthy b 2"},
		{"one stopped", abc("2"), but(ok, from("b", healthy("2", valid+1))),
			"KMSHealthReporting ReporterStale b , KMSPluginsDegraded ReporterStale b , KMSWriteKeyAgreed ReporterStale b 2"},
		{"one stopped with its node", bIs(down), but(ok, from("b", healthy("2", valid+1))),
			"KMSWriteKeyAgreed ReporterStale b 2"},
		{"one stopped while its API server is replaced", bIs(renewed(5)), but(ok, from("b", healthy("2", valid+1))),
			"KMSWriteKeyAgreed ReportsMissing b 2"},
		{"no socket while its API server is replaced", bIs(renewed(5)), but(ok, from("b", socketless(1))),
			"KMSWriteKeyAgreed PluginUnhealthy b 2"},
		{"first enablement: one has not reported yet", abc("2"), ok[:2],
			"KMSWriteKeyAgreed ReportsMissing c 2"},
		{"one is never reported", aIs(overdue), nil,
			"KMSHealthReporting ReportsMissing a , KMSPluginsDegraded ReportsMissing a , KMSWriteKeyAgreed ReportsMissing a 2"},
		{"keys differ", abc("2"), but(ok, from("b", naming("k-8", healthy("2", 5)))),
			"KMSWriteKeyAgreed KeysDiffer a 2, KMSWriteKeyAgreed KeysDiffer b 2, KMSWriteKeyAgreed KeysDiffer c 2"},
		{"KMS is off", nil, nil, ""},
	} {
		r := Evaluate(&Input{Now: now, Wall: now, Agreement: agreement2, Nodes: tt.nodes, Reports: tt.reports, WriteKey: "2"})
		var got []string
		for condition, findings := range r.Findings {
			for _, f := range findings {
				got = append(got, fmt.Sprint(condition, " ", f.Reason, " ", f.Node, " ", f.Key))
			}
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s:\n%s, want\n%s", tt.name, strings.Join(got, ", "), tt.want)
		}
	}
}
