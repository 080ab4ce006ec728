package contract

import "slices"

// The conditions that the operator writes to an operator resource.
const (
	PluginsDegraded = "KMSPluginsDegraded"
	HealthReporting = "KMSHealthReporting"
	WriteKeyAgreed  = "KMSWriteKeyAgreed"
)

// Statuses of a condition.
const (
	isTrue    = "True"
	isFalse   = "False"
	isUnknown = "Unknown"
)

// RollupReasons are all reasons of the conditions of an operator resource, the most severe first.
var RollupReasons = []Row{
	// Plugins and keys.
	{Name: "PluginNotRunning", Alerts: []string{"KMSPluginNotRunning"}, Degraded: isTrue, Alerted: true,
		Means: "a plugin's container cannot start, or crashes and has not run for 30 s",
		Check: "the message has container, reason and a command. On the node: `crictl ps -a --name kms`",
		Fix:   "correct image, pull secret or arguments. A Secret that this plugin encrypts must become a file",
		DoNot: "roll its configuration out to other nodes"},
	{Name: "PluginError", Degraded: isTrue, Alerted: true,
		Means: "the plugin does not answer in time, its socket is missing, nothing listens on it, or `Status` fails",
		Check: "the reason of the report, as `SocketMissing` or `Timeout`; then the plugin's log",
		Fix:   "as the block of that reason describes. A plugin that hangs may be restarted alone"},
	{Name: "KeysDiffer", Alerts: []string{"KMSWriteKeysDiffer"}, Agreed: isFalse, Alerted: true,
		Means: "nodes report different KEK IDs for the write key. Normal for a moment during a rotation",
		Check: "`kubectl kms-health status` shows the node whose plugin caches the key's version, or uses another KMS",
		Fix:   "compare the configurations. If equal, restart that plugin alone while the others are healthy",
		DoNot: "delete or disable a version of the key, or start another rotation"},
	{Name: "WriteKeyNotDeployed", Alerts: []string{"KMSWriteKeyNotDeployed"}, Agreed: isFalse, Alerted: true,
		Means: "an API server writes with another key or without KMS. Normal during a rollout",
		Check: "`kubectl get co`, `.status.nodeStatuses`; else each node's `--encryption-provider-config`",
		Fix:   "end the rollout, or restart that API server while its plugins are healthy. Then migrate again",
		DoNot: "delete the earlier key or its provider"},
	{Name: "PluginUnhealthy", Alerts: []string{"KMSPluginUnhealthy", "KMSReporterPluginUnhealthy"},
		Degraded: isTrue, Agreed: isUnknown, Alerted: true,
		Means: "the plugin answers that it is not healthy, its answer breaks the KMS v2 API, or a round trip failed",
		Check: "the plugin's text is in the message, the rest in its log: the message ends with the command",
		Fix:   "usually at the KMS: unseal it, renew credentials, or enable the key"},
	// What prevents that reporters are delivered.
	{Name: "OtherInstallation", Reporting: isFalse, NeedsAction: true,
		Means: "an operator in another namespace owns the API server. Nothing is changed, and `/readyz` fails",
		Fix:   "remove one of the two"},
	{Name: "ResourceMissing", Reporting: isFalse, NeedsAction: true,
		Means: "the operator resource does not exist, so only ClusterOperator, metric and Event have this reason",
		Check: "`kubectl get RESOURCE cluster`, with the resource in the message",
		Fix:   "create it, or remove the API server from the configuration"},
	{Name: "Forbidden", Reporting: isFalse, NeedsAction: true,
		Means: "a right is missing, or admission (a policy, a quota, a webhook) denied a request",
		Fix:   "apply the manifests, with the component of the mode. A policy of this project: add the folder or name",
		DoNot: "grant `cluster-admin`: the policies would still deny the request"},
	{Name: "Refused", Reporting: isFalse, NeedsAction: true,
		Means: "the API server rejects an object as invalid, for example with the defaults of a LimitRange",
		Fix:   "allow the object in that namespace"},
	{Name: "RequestFailed", Reporting: isFalse, NeedsAction: true,
		Means: "a request failed for another reason. It is retried with a backoff of up to 10 s",
		Check: "the message. `context deadline exceeded`: a webhook that does not answer, or an unhealthy KMS plugin",
		Fix:   "repair that webhook or plugin"},
	{Name: "PolicyMissing", Reporting: isFalse, NeedsAction: true,
		Means: "the policy that bounds reporters is missing or of another version: no reporter is given a right",
		Check: "`kubectl get validatingadmissionpolicy kms-health-reporter`",
		Fix:   "apply the manifests of the operator's version",
		DoNot: "delete the policy while reporters run"},
	{Name: "RenewalFailed", Alerts: []string{"KMSReporterCredentialExpires"}, Reporting: isFalse, NeedsAction: true,
		Means: "a token could not be created or renewed. After it expires, its reporters cannot write",
		Fix:   "add the missing right or component. If a Secret cannot be read: repair the plugin that encrypts it",
		DoNot: "delete the Secret"},
	{Name: "CAUnreadable", Reporting: isFalse, NeedsAction: true,
		Means: "the API server's CA cannot be read. The last one stays active; without one nothing is delivered",
		Fix:   "make it valid PEM",
		DoNot: "delete the operator's pod during a plugin outage"},
	{Name: "SourceUnreadable", Degraded: isUnknown, Reporting: isFalse, NeedsAction: true,
		Means: "an object cannot be read. What was read before stays active, except the list of pods",
		Check: "the message. A Secret that cannot be decrypted: an unhealthy plugin; else a right is missing",
		Fix:   "repair the plugin first; or apply the manifests"},
	{Name: "EncryptionConfigUnreadable", Reporting: isFalse, NeedsAction: true,
		Means: "the Secret has no valid EncryptionConfiguration. The last plugin set stays active",
		Fix:   "correct the Secret, or `encryptionConfig.key` in the operator's file",
		DoNot: "delete the Secret: that means that KMS is off"},
	{Name: "ProviderNotProbed", Degraded: isUnknown, Reporting: isFalse, NeedsAction: true,
		Means: "a `kms` provider cannot be probed, for example since it is KMS v1: its health is not known",
		Fix:   "use KMS v2; correct the endpoint or the timeout"},
	{Name: "DeploymentMissing", Reporting: isFalse, NeedsAction: true,
		Means: "the API server's Deployment does not exist",
		Check: "`kubectl get deployment -n NAMESPACE`",
		Fix:   "create it, or correct `deployment` in the operator's file"},
	{Name: "SocketVolumeMissing", Reporting: isFalse, NeedsAction: true,
		Means: "no volume of a pod has a plugin's socket",
		Fix:   "mount a volume at that folder, or correct `container` in the operator's file"},
	{Name: "InjectionReverted", Reporting: isFalse, NeedsAction: true,
		Means: "the owner of the Deployment removed the reporter. It is not added again: each revert is a rollout",
		Check: "who: `kubectl get deployment -n NAMESPACE NAME -o yaml --show-managed-fields`",
		Fix:   "use another mode; or, if the owner now keeps it, run the command in the message"},
	{Name: "DeploymentStrategy", Reporting: isFalse, NeedsAction: true,
		Means: "a rollout may end all pods before a new one is ready, so the reporter is not added",
		Check: "`.spec.strategy`: `Recreate`, or a `maxUnavailable` that is not below the replicas",
		Fix:   "with one replica `maxUnavailable: 0`, `maxSurge: 1`; or use another mode"},
	{Name: "DeploymentPaused", Reporting: isFalse, NeedsAction: true,
		Means: "the Deployment is paused, so the reporter's container is not rolled out",
		Fix:   "resume the rollout"},
	{Name: "ReporterNotRunning", Alerts: []string{"KMSReporterNotRunning"},
		Degraded: isTrue, Reporting: isFalse, Alerted: true, Upgradeable: true, NeedsAction: true,
		Means: "a reporter cannot start. The state of plugins on that node may be unknown",
		Fix:   "correct the image, Pod Security, SCC or folder. For a ConfigMap: repair the plugin, then `configSource`",
		DoNot: "delete the API server's pod"},
	{Name: "NoReporters", Reporting: isFalse, NeedsAction: true,
		Means: "the DaemonSet selects no node, no pod of the API server runs, or its owner has added no reporter",
		Fix:   "correct `nodeSelector`, or add the container"},
	// What reports show.
	{Name: "WriteKeyUnknown", Agreed: isUnknown,
		Means: "an encryption config cannot be read, or changed after the API server had read it",
		Check: "`KMSHealthReporting`: `SourceUnreadable`, `EncryptionConfigUnreadable` or `Forbidden`",
		Fix:   "as for that reason. Restart an API server that is older than its Secret"},
	{Name: "ReportUnreadable", Alerts: []string{"KMSReportUnusable"},
		Degraded: isUnknown, Reporting: isFalse, Agreed: isUnknown, Alerted: true,
		Means: "a report does not follow the contract",
		Check: "`kubectl kms-health status NODE` shows who wrote it",
		Fix:   "stop the other writer; use one version of operator and reporters"},
	{Name: "ReporterStale", Alerts: []string{"KMSReporterSilent"},
		Degraded: isUnknown, Reporting: isFalse, Agreed: isUnknown, Alerted: true,
		Means: "a reporter has stopped reporting. Its plugins' state is unknown",
		Check: "the reporter's log: `Failed to write reports`, or `Failed to probe because of the reporter itself`",
		Fix:   "correct what the log names: rights, credentials, CA, network. Delete a companion or agent that hangs",
		DoNot: "restart the API server's pod to restart a sidecar"},
	{Name: "ReportsMissing", Alerts: []string{"KMSNodeNotReported"},
		Degraded: isUnknown, Reporting: isFalse, Agreed: isUnknown, Alerted: true,
		Means: "an expected node has not reported for 5 minutes, or its report was removed",
		Check: "whether a reporter runs there (an agent needs the `nodeSelector`, a sidecar its owner), and its log",
		Fix:   "start the reporter; or correct `keyIDs` in the operator's file"},
	{Name: "OtherPlugins", Alerts: []string{"KMSReporterConfigurationUnexpected"}, Reporting: isFalse, Alerted: true,
		Means: "the report is about other plugins than those of the pod, and does not count. Normal during a rollout",
		Check: "the reporter's log has both hashes; whether a rollout of the API server or of the agents is stuck",
		Fix:   "wait a minute for the kubelet to update the file; or delete the companion's or agent's pod",
		DoNot: "edit the annotation `kmshealth.openshift.io/config-hash`"},
	// Reports continue, and may end.
	{Name: "ProgressDeadlineExceeded", Reporting: isFalse, Alerted: true, NeedsAction: true,
		Means: "a rollout, or a pod that does not start, has not changed for 5 minutes",
		Check: "`kubectl describe` the pod, DaemonSet or Deployment in the message",
		Fix:   "correct what its events name"},
	{Name: "TLSProfileInvalid", Reporting: isFalse, NeedsAction: true,
		Means: "the cluster's TLS profile cannot be used. The last valid one stays active, else `Intermediate`",
		Check: "`kubectl get apiserver.config.openshift.io cluster -o yaml`",
		Fix:   "correct `tlsSecurityProfile`"},
	{Name: "ReportsEncrypted", Reporting: isFalse, NeedsAction: true,
		Means: "KMS encrypts the resource with the reports (`*.*`): 3 minutes after a fault none can be written",
		Check: "the resources in the encryption config",
		Fix:   "give that resource an entry of its own, without KMS, before that one"},
	{Name: "ConfigMapsEncrypted", Reporting: isFalse, NeedsAction: true,
		Means: "reporters mount a ConfigMap that KMS encrypts: they do not start while the plugin is unhealthy",
		Check: "the resources in the encryption config",
		Fix:   "set `configSource: Annotation` in the operator's file"},
	{Name: "Unmanaged", Reporting: isFalse,
		Means: "`managementState` is `Unmanaged`, and nodes have no reporter. Only the sidecars' token is renewed",
		Fix:   "add reporters by hand, or set `Managed`"},
	// No action is needed.
	{Name: "NamespaceMissing", Reporting: isFalse,
		Means: "the API server's namespace does not exist",
		Fix:   "no action needed if the API server is not installed; else correct `namespace` in the operator's file"},
	{Name: "NoPods", Degraded: isFalse, Reporting: isFalse,
		Means: "no pod of the API server is on a node, so no plugin is judged",
		Check: "if API servers run: `kubectl get pods -n NAMESPACE -l SELECTOR -o wide`",
		Fix:   "correct `namespace` or `podSelector` in the operator's file"},
	{Name: "Removing", Reporting: isFalse, UnderWay: true,
		Means: "reporters are being removed. After 5 minutes without a change: `ProgressDeadlineExceeded`",
		Fix:   "wait"},
	{Name: "Progressing", Degraded: isFalse, Reporting: isFalse, UnderWay: true,
		Means: "reporters are being delivered. After 5 minutes: `ProgressDeadlineExceeded` or `ReportsMissing`",
		Fix:   "wait, at most 5 minutes"},
	{Name: "NoPlugins", Degraded: isFalse, Reporting: isTrue,
		Means: "no pod of the API server has a KMS plugin: KMS is off"},
	{Name: "AsExpected", Degraded: isFalse, Reporting: isTrue, Agreed: isTrue,
		Means: "nothing is wrong"},
	{Name: "NoWriteKey", Agreed: isUnknown,
		Means: "KMS is being turned off: no plugin encrypts new data",
		DoNot: "remove a plugin before the stored objects are migrated"},
	{Name: "Off",
		Means: "KMS is off. Only the metric and the Event have this reason"},
	{Name: "Removed",
		Means: "everything is removed, by `managementState: Removed`. Only the metric and the Event have this reason"},
}

// ClusterOperatorReasons are those of ClusterOperator/kms-health that no other condition has.
var ClusterOperatorReasons = []Row{
	{Name: "NoConfiguration",
		Means: "the operator started without a valid file, and does nothing",
		Fix:   "correct the ConfigMap `kms-health-operator-config`"},
	{Name: "Configuration_Invalid", Alerts: []string{"KMSHealthOperatorConfigurationRejected"},
		Means: "the operator's file has an error. The last valid one stays active until a restart",
		Check: "the operator's log has every error. Check a file: `kms-health-operator validate --config FILE`",
		Fix:   "correct the ConfigMap `kms-health-operator-config`. It is active within two minutes",
		DoNot: "restart the operator before the file is valid"},
	{Name: "CANotCurrent", Alerts: []string{"KMSHealthOperatorCAExpires"},
		Means: "the CA in the operator's Deployment (`start-during-plugin-outage`) ends, and then its connections",
		Check: "the message; the ConfigMap `kube-root-ca.crt` in the operator's namespace",
		Fix:   "rotate the API server's CA. If no operator connects, set the CA again as in the installation",
		DoNot: "remove the annotation"},
}

// RollupReasonOf returns the row of a reason; of one that has none, a row that needs action.
func RollupReasonOf(reason string) Row {
	if at := Severity(reason); at >= 0 {
		return RollupReasons[at]
	}
	return Row{Name: reason, Reporting: isFalse, NeedsAction: true}
}

// Severity is the place of a reason in the table: the lower, the more severe. -1: it has none.
func Severity(reason string) int {
	return slices.IndexFunc(RollupReasons, func(r Row) bool { return r.Name == reason })
}
