package contract

import "slices"

// Row is a reason, an alert that no reason covers, or a condition type, with what an administrator needs to know. The
// texts are plain, with commands and names in backquotes, and end without a full stop, so that programs can print
// them; docs/operate/runbooks.md is generated from them. Means, Check and Fix have at most 60 words. make generate
// writes a constant for each reason: zz_generated_reasons.go.
type Row struct {
	Name   string   // in lower case it is the anchor in the page
	Alerts []string // those that fire for this reason
	// Means is what has happened, and its impact. Check is how to find the cause; if it is not set, the message has
	// the cause. Fix is what to do, if action is needed. DoNot is what makes it worse; not set if nothing does.
	Means, Check, Fix, DoNot string

	// From is what a plugin's reason is derived from. Only plugins' rows have it, and these have no field below.
	From string
	// Degraded, Reporting and Agreed are the statuses that the reason gives KMSPluginsDegraded,
	// KMSHealthReporting and KMSWriteKeyAgreed where it is the most severe; empty: it gives none.
	Degraded, Reporting, Agreed string
	Alerted                     bool // a finding with it is in an alert of its own
	// NeedsAction: an administrator must act on it in KMSHealthReporting. Its Event is a warning,
	// it is in one alert, and it makes the ClusterOperator Degraded.
	NeedsAction bool
	UnderWay    bool // it ends without intervention, or becomes ProgressDeadlineExceeded

	// True, False and Unknown are what these statuses of a condition type mean; empty: it never has that status. Only
	// the rows of condition types have them, and of the other fields only Name and Means.
	True, False, Unknown string
}

// Reason is why a plugin is not healthy, in one word for alerts and scripts. Detail is
// for people. Readers treat a Reason that they do not know as one more cause.
type Reason string

// PluginReasons are all that this version writes.
var PluginReasons = []Row{
	{Name: "ConnectFailed", From: "connect(2)",
		Means: "nothing listens on the socket, or access is denied",
		Check: "the plugin's log; the permissions of the socket and its folder",
		Fix: "start the plugin, or correct the permissions. If its log has `address already in use`, remove the socket's " +
			"file, which a killed plugin leaves behind"},
	{Name: "SocketMissing", From: "connect(2) or lstat(2)",
		Means: "no socket in its folder: the plugin ended cleanly, or has not started",
		Check: "the plugin's log; the socket's path. An old process may remove its successor's socket",
		Fix: "start the plugin; if only the file was removed, restart it before any API server. A plugin in a pod may wait " +
			"for the cluster that it unlocks: run it on the host"},
	{Name: "Timeout", From: "the gRPC code `DeadlineExceeded`; a plugin that does not read its socket",
		Means: "no answer within the plugin's timeout, or its own deadline",
		Check: "one node: its network to the KMS, the plugin's CPU limit. All nodes: the KMS",
		Fix:   "restore the network to the KMS, or raise the CPU limit"},
	{Name: "Unauthenticated", From: "the gRPC code",
		Means: "the KMS does not accept the plugin's credentials",
		Check: "the plugin's log; when the credentials expire",
		Fix:   "renew the plugin's credentials (an operator's plugin: in its resource, `VaultKMSConfig`)"},
	{Name: "PermissionDenied", From: "the gRPC code",
		Means: "the KMS accepts the credentials, and denies the call",
		Check: "the plugin's log; the KMS's policy for this key",
		Fix:   "allow encrypt and decrypt with the key again"},
	{Name: "Throttled", From: "the gRPC code `ResourceExhausted`",
		Means: "the KMS or the plugin received too many calls, or a quota is used up",
		Check: "the KMS's metrics of calls, and its quotas",
		Fix:   "raise the quota, or stop the other caller"},
	{Name: "Unavailable", From: "the gRPC code; a connection that breaks during the call",
		Means: "the plugin does not reach its KMS, or the connection broke during a call",
		Check: "network, DNS and proxy to the KMS; its state. If the connection broke: the plugin's restarts",
		Fix:   "start or unseal the KMS, or restore the network"},
	{Name: "KeyUnavailable", From: "the gRPC code `NotFound`",
		Means: "the key does not exist in the KMS, or is disabled",
		Check: "the key's state in the KMS",
		Fix:   "enable or restore the key, which is usually possible before its scheduled deletion",
		DoNot: "create another key in its place"},
	{Name: "ProtocolViolation", From: "an answer against the KMS v2 API; the gRPC code `Unimplemented`",
		Means: "the answer breaks the KMS v2 API (version, `key_id`, size, annotations), or a call is not implemented",
		Check: "the report's detail, the plugin's version",
		Fix: "install another version of the plugin. After a change of `version` restart the API server while the " +
			"plugin works, then the reporter: both keep the first version"},
	{Name: "ReportedUnhealthy", From: "a `healthz` other than `ok`; any other code",
		Means: "the plugin reports that it is not healthy, without a more specific cause",
		Check: "the plugin's text in the report, and its log",
		Fix:   "correct what the plugin's text describes"},
	{Name: "RoundTripMismatch", From: "the round trip",
		Means: "a round trip returned other bytes, or earlier data can no longer be decrypted: it may be lost",
		Check: "the KMS's log: was the KMS or the key replaced? If the connection broke: the plugin's log and restarts",
		Fix: "restore the earlier key first; a requested round trip then shows it at once. If it returned other bytes, " +
			"see also `KMSStoredDataUnreadable`",
		DoNot: "rotate, migrate, or restart an API server: only its cache may still have the data"},
}

// Known reports whether this version has the reason.
func (r Reason) Known() bool {
	return slices.ContainsFunc(PluginReasons, func(row Row) bool { return row.Name == string(r) })
}
