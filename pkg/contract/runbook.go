package contract

import "slices"

// RunbookGroup is a section of the page of runbooks.
type RunbookGroup struct {
	Title string
	Rows  []Row
}

// RunbookGroups are all sections: every reason, and every alert.
var RunbookGroups = []RunbookGroup{
	{"Conditions", RollupReasons},
	{"Reports of a plugin", PluginReasons},
	{"The operator", ClusterOperatorReasons},
	{"Waiting", waitReasons},
	{"Alerts", alerts},
	{"OpenShift's own conditions", openShiftConditions},
}

// RunbookOf returns the row of a reason or of an alert; false if there is none.
func RunbookOf(name string) (Row, bool) {
	for _, g := range RunbookGroups {
		for _, r := range g.Rows {
			if r.Name == name || slices.Contains(r.Alerts, name) {
				return r, true
			}
		}
	}
	return Row{}, false
}

// RoundTripAwaited is the reason of a status whose reports may be older than a change.
const RoundTripAwaited = "RoundTripAwaited"

// waitReasons are the reasons of `status --wait`.
var waitReasons = []Row{
	{Name: RoundTripAwaited,
		Means: "reports may be older than your change",
		Fix: "wait longer (`--timeout`, or `--wait=11m`): without a request, for two regular round trips; by default one " +
			"is made every 5 minutes. A request needs an operator, and the right to patch. With `roundTrip.interval: 0s` " +
			"there are none"},
}

// alerts are those that no reason covers.
var alerts = []Row{
	{Name: "KMSNoHealthyPlugin",
		Means: "a key's plugin is healthy on no node. An API server that restarts cannot read what this key encrypted",
		Check: "`kubectl kms-health status`. The same reason on all nodes: usually the KMS",
		Fix:   "repair the KMS first, then the plugins. No restart is needed",
		DoNot: "delete or rotate a key, or remove its provider from the encryption config"},
	{Name: "KMSNoAPIServerReachesPlugin",
		Means: "no API server has had a valid `Status` of the plugin for 3 minutes: they reject new encrypted objects",
		Check: "as for `KMSNoHealthyPlugin`. If reports are healthy: whether reporters and API servers use one socket",
		Fix:   "as for `KMSNoHealthyPlugin`",
		DoNot: "restart an API server to make it connect"},
	{Name: "KMSAPIServerLacksPlugin",
		Means: "this API server has had no valid `Status` for 3 minutes, and rejects what it would encrypt",
		Check: "the node in `instance`. If its plugin is healthy: whether reporter and encryption config name one socket",
		Fix:   "as for `PluginUnhealthy`. If the socket's folder was deleted and created again, restart this API server",
		DoNot: "restart it otherwise"},
	{Name: "KMSStoredDataUnreadable",
		Means: "this API server cannot decrypt a stored object, so lists of that resource fail",
		Check: "the plugin on the node in `instance`; the providers of its encryption config",
		Fix: "repair the plugin, or add a provider that was removed. Else restart this API server: it keeps a wrong " +
			"data key for a day. If that does not help, the key is lost",
		DoNot: "restart it before its plugin is healthy"},
	{Name: "KMSCallsFail",
		Means: "calls fail. Without `Status` encryption stops after 3 minutes, without `Decrypt` only the cache is readable",
		Check: "the dashboard. `DeadlineExceeded` is the provider's timeout, `unknown-non-grpc` no connection",
		Fix:   "as for `PluginUnhealthy`. If only `Decrypt` fails, restore the right to decrypt or the earlier key",
		DoNot: "rotate the key"},
	{Name: "KMSCallsSlow",
		Means: "half of the calls take more than 1 s, so an API server that restarts becomes ready late",
		Check: "one node: its network, the plugin's CPU limit. All nodes: the KMS, throttling",
		Fix:   "restore the network, or raise the plugin's limits or the KMS's quota",
		DoNot: "raise the provider's timeout now: that rolls out all API servers"},
	{Name: "KMSOldKeyStillRead",
		Means: "data of an earlier key is still read. After that key is deleted, it is lost",
		Check: "`kubectl kms-health stored-keys --kek-id HASH`, with the `key_id_hash` of the alert",
		Fix: "rewrite every resource of the encryption config, not Secrets alone: " +
			"`kubectl get secrets,configmaps -A -o json | kubectl patch --type=merge -p '{}' -f -`. " +
			"Proof: the command above exits with 0",
		DoNot: "delete the old key before that proof, or while a backup of etcd needs it"},
	{Name: "KMSReporterCertificateExpires",
		Means: "a reporter's client certificate has less than a tenth of its lifetime left, or has expired",
		Check: "`client_certificate_remaining_seconds` of the reporter at `instance`; who renews the Secret or files",
		Fix:   "renew the certificate. The reporter reads it within 10 s, without a restart",
		DoNot: "restart the API server's pod for it"},
	{Name: "KMSReporterCredentialExpires",
		Means: "a token could not be created or renewed. When it expires, its reporters cannot write",
		Check: "the message of `KMSHealthReporting`",
		Fix:   "add the missing right or component. If a Secret cannot be read: repair the plugin that encrypts it",
		DoNot: "delete the Secret"},
	{Name: "KMSFormerKeyLost",
		Means: "a plugin no longer decrypts what a former key encrypted. Harmless if nothing stored needs that key",
		Check: "what needs it: `kubectl kms-health stored-keys --kek-id KEK_ID`",
		Fix: "if anything does, restore the key `kek_id` in the KMS, and rewrite every resource as for " +
			"`KMSOldKeyStillRead`; else turn round trips off and on, which forgets it",
		DoNot: "restart an API server before that: only its cache may have the data"},
	{Name: "KMSNothingReported",
		Means: "nothing valid is reported about any plugin of this API server",
		Check: "`KMSHealthReporting`; the reporters' logs",
		Fix:   "correct what the reason or the log names",
		DoNot: "delete the conditions `KMSHealthReporter_…`: they show the last state"},
	{Name: "KMSReporterWritesFail",
		Means: "all writes of a reporter fail: its node's report becomes stale",
		Check: "`result` in its log",
		Fix:   "correct what the result names: rights, token, CA (`tls`), address or network policy, CRD or object",
		DoNot: "bind wider rights: a reporter needs `patch` of one `/status`"},
	{Name: "KMSReporterConfigurationRejected",
		Means: "a reporter rejects its file. The last valid one stays active; without one it probes nothing",
		Check: "its log has every error. `kms-health-reporter --validate --config FILE` checks a file",
		Fix:   "correct the file; or use one version of operator and reporter",
		DoNot: "restart the reporter before the file is valid"},
	{Name: "KMSReporterConfigurationUnexpected",
		Means: "a reporter's file has other plugins than the pod's. Normal during a rollout",
		Check: "both hashes in the reporter's log; whether a rollout of the API server or agents is stuck",
		Fix:   "wait a minute for the kubelet to update the file; or delete the companion's or agent's pod",
		DoNot: "edit the annotation `kmshealth.openshift.io/config-hash`"},
	{Name: "KMSReporterDeliveryFails",
		Means: "reporters, or their reports, need an administrator. Plugins and API servers are not affected",
		Check: "the reason in the description; the operator's log",
		Fix:   "as for that reason. The operator retries at least once a minute"},
	{Name: "KMSHealthOperatorAbsent",
		Means: "no operator is elected, or none is scraped. Reporters continue; conditions may be out of date",
		Check: "pods, log and Lease `kms-health-operator`. If a pod holds the Lease, Prometheus cannot scrape it",
		Fix: "correct what events or log name. If a ConfigMap or Secret cannot be read: repair the plugin first. " +
			"`x509` on a single node: set the CA again",
		DoNot: "delete an operator's pod during a plugin outage"},
	{Name: "KMSRollupNotWritten",
		Means: "the operator cannot write conditions. Its metrics and alerts are current",
		Check: "the operator's log, for `roll-up`",
		Fix:   "rejected or forbidden: apply the manifests of this version. No answer: the API server",
		DoNot: "remove the policies `kms-health-operator-status` and `kms-health-reporter`"},
}
