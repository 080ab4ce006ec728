package rollup

import (
	"slices"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// The conditions of a roll-up. Only the first has a suffix that a StatusSyncer
// aggregates into a cluster operator's condition; the last two are written on request.
const (
	Degraded       = "KMSPluginsDegraded"
	Observed       = "KMSHealthObserved"
	WriteKeyAgreed = "KMSWriteKeyAgreed"
	Available      = "KMSPluginsAvailable"
	Progressing    = "KMSPluginsProgressing"
)

// Types are those of a roll-up's conditions, wanted or not.
var Types = []string{Degraded, Observed, WriteKeyAgreed, Available, Progressing}

// Reasons of the conditions. docs/operate/conditions.md describes each.
const (
	AsExpected          = "AsExpected"
	AwaitingReports     = "AwaitingReports"
	PluginNotRunning    = "PluginNotRunning"
	PluginError         = "PluginError"
	PluginUnhealthy     = "PluginUnhealthy"
	ReporterNotRunning  = "ReporterNotRunning"
	ReportUnreadable    = "ReportUnreadable"
	KeysDiffer          = "KeysDiffer"
	WriteKeyNotDeployed = "WriteKeyNotDeployed"
	ClockSkew           = "ClockSkew"
	ReporterStale       = "ReporterStale"
	ReportsMissing      = "ReportsMissing"
	OtherPlugins        = "OtherPlugins"
	NoPods              = "NoPods"
	NoPlugins           = "NoPlugins"
	NoWriteKey          = "NoWriteKey"
	WriteKeyUnknown     = "WriteKeyUnknown"
)

// severities are the reasons of findings, the most severe first, with the status that
// each gives two conditions. Every finding makes KMSHealthObserved False.
var severities = []struct {
	reason           Reason
	degraded, agreed string // empty: no such finding
}{
	{PluginNotRunning, operatorcr.True, ""},
	{PluginError, operatorcr.True, ""},
	{KeysDiffer, "", operatorcr.False},
	{WriteKeyNotDeployed, "", operatorcr.False},
	{PluginUnhealthy, operatorcr.True, operatorcr.Unknown},
	{ReporterNotRunning, operatorcr.True, ""},
	{ReportUnreadable, operatorcr.Unknown, operatorcr.Unknown},
	{ClockSkew, operatorcr.Unknown, operatorcr.Unknown},
	{ReporterStale, operatorcr.Unknown, operatorcr.Unknown},
	{ReportsMissing, "", operatorcr.Unknown},
	{OtherPlugins, "", ""},
	{AwaitingReports, operatorcr.False, ""},
}

// severity is a reason's index in severities.
func severity(reason Reason) int {
	for i := range severities {
		if severities[i].reason == reason {
			return i
		}
	}
	return len(severities)
}

// mostSevere is the index in severities of the most severe finding.
func mostSevere(findings []Finding) int {
	return severity(slices.MinFunc(findings, func(a, b Finding) int { return severity(a.Reason) - severity(b.Reason) }).Reason)
}
