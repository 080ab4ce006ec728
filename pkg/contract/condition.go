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
		Check: "`kubectl describe` its pod, and its log with `--previous`. On the node: `crictl ps -a --name kms`",
		Fix: "correct image, pull secret, arguments or memory limit (an operator's plugin: in its resource, " +
			"`VaultKMSConfig`). A Secret that the plugin itself encrypts must become a file",
		DoNot: "roll its configuration out to other nodes"},
	{Name: "EncryptionNotConfigured", Alerts: []string{"KMSEncryptionNotConfigured"}, Degraded: isTrue, Agreed: isFalse,
		Alerted: true,
		Means: "an API server runs without `--encryption-provider-config`: it cannot read what is encrypted, and " +
			"stores new Secrets unencrypted",
		Check: "its pod's arguments: an upgrade may have written the manifest anew",
		Fix:   "add flag and volumes again, and rewrite what was stored meanwhile. If KMS is off for good: empty `plugins`",
		DoNot: "upgrade the next control plane node"},
	{Name: "PluginError", Degraded: isTrue, Alerted: true,
		Means: "the plugin cannot be connected to, does not answer in time, or fails `Status`",
		Check: "the reason of the report, such as `SocketMissing` or `Timeout`; then the plugin's log",
		Fix:   "as for that reason. A plugin that hangs may be restarted alone"},
	{Name: "KeysDiffer", Alerts: []string{"KMSWriteKeysDiffer"}, Agreed: isFalse, Alerted: true,
		Means: "nodes report different KEK IDs for the write key. Normal for a moment during a rotation",
		Check: "`kubectl kms-health status`: which node's plugin caches the key's version, or uses another KMS",
		Fix:   "compare the configurations. If equal, restart the plugin with the older ID while the others are healthy",
		DoNot: "delete or disable a version of the key, or rotate again"},
	{Name: "WriteKeyNotDeployed", Alerts: []string{"KMSWriteKeyNotDeployed"}, Agreed: isFalse, Alerted: true,
		Means: "an API server does not write as configured yet. Normal during a rollout",
		Check: "`kubectl get co`, `.status.nodeStatuses`; else each node's `--encryption-provider-config`",
		Fix:   "let the rollout finish, or restart that API server while its plugins are healthy. Then migrate again",
		DoNot: "delete the earlier key or its provider"},
	{Name: "WriteKeyOfSome", Agreed: isFalse,
		Means: "some resources are encrypted with another key, or not at all",
		Check: "the message; the first provider of each entry",
		Fix:   "put the same KMS v2 plugin first in each entry that lists one",
		DoNot: "migrate, or delete a key, before that"},
	{Name: "PluginUnhealthy", Alerts: []string{"KMSPluginUnhealthy", "KMSReporterPluginUnhealthy"},
		Degraded: isTrue, Agreed: isUnknown, Alerted: true,
		Means: "the plugin reports that it is not healthy, breaks the KMS v2 API, or failed a round trip",
		Check: "the message: the plugin's text; its log, by `kubectl kms-health status`",
		Fix:   "usually at the KMS: unseal it, renew credentials, or enable the key"},
	// Reporters cannot be delivered.
	{Name: "OtherInstallation", Reporting: isFalse, NeedsAction: true,
		Means: "an operator in another namespace owns the API server. Nothing is changed, and `/readyz` fails",
		Fix:   "remove one of the two, and then apply the manifests of the other again"},
	{Name: "ResourceMissing", Reporting: isFalse, NeedsAction: true,
		Means: "the operator resource does not exist. Only ClusterOperator, metric and Event have this reason",
		Check: "`kubectl get RESOURCE cluster`",
		Fix:   "create it, or remove the API server from the configuration"},
	{Name: "Forbidden", Reporting: isFalse, NeedsAction: true,
		Means: "a right is missing, or admission (a policy, a quota, a webhook) denied a request",
		Fix:   "apply the manifests, with the mode's component. If a policy of this project denies: add the folder or name",
		DoNot: "grant `cluster-admin`: the policies would still deny the request"},
	{Name: "Refused", Reporting: isFalse, NeedsAction: true,
		Means: "the API server rejects an object as invalid, for example by a LimitRange's defaults",
		Fix:   "allow the object in that namespace"},
	{Name: "RequestFailed", Reporting: isFalse, NeedsAction: true,
		Means: "a request failed for another reason. It is retried, with a backoff of up to 10 s",
		Check: "the message. `context deadline exceeded`: a webhook that does not answer, or an unhealthy plugin",
		Fix:   "repair that webhook or plugin"},
	{Name: "PolicyMissing", Reporting: isFalse, NeedsAction: true,
		Means: "the policy that bounds reporters is missing or of another version: no reporter gets a right",
		Check: "`kubectl get validatingadmissionpolicy kms-health-reporter`",
		Fix:   "apply the manifests of the operator's version"},
	{Name: "SourceUnreadable", Degraded: isUnknown, Reporting: isFalse, NeedsAction: true,
		Means: "an object, or the API server's CA, cannot be read. What was read last stays active, except the list of pods",
		Check: "the message. A Secret that cannot be decrypted: an unhealthy plugin; else a right is missing",
		Fix:   "repair the plugin first; or apply the manifests",
		DoNot: "delete the operator's pod during a plugin outage"},
	{Name: "EncryptionConfigUnreadable", Reporting: isFalse, NeedsAction: true,
		Means: "the Secret has no valid EncryptionConfiguration. The last plugin set stays active",
		Fix:   "correct the Secret, or `encryptionConfig.key` in the operator's file",
		DoNot: "delete the Secret: the operator would conclude that KMS is off"},
	{Name: "ProviderNotProbed", Degraded: isUnknown, Reporting: isFalse, NeedsAction: true,
		Means: "a `kms` provider cannot be probed, for example of KMS v1: its health is not known",
		Fix:   "use KMS v2; correct the endpoint or the timeout"},
	{Name: "DeploymentMissing", Reporting: isFalse, NeedsAction: true,
		Means: "the API server's Deployment does not exist",
		Check: "`kubectl get deployment -n NAMESPACE`",
		Fix:   "create it, or correct `deployment` in the operator's file"},
	{Name: "SocketVolumeMissing", Reporting: isFalse, NeedsAction: true,
		Means: "a reporter cannot mount a plugin's socket: no volume of a pod has its folder, or as the message says",
		Fix:   "mount a volume at that folder, not at the socket, or correct `container` or `mode` in the operator's file"},
	{Name: "InjectionReverted", Reporting: isFalse, NeedsAction: true,
		Means: "the Deployment's owner removed the reporter. It is not added again",
		Check: "who: `kubectl get deployment -n NAMESPACE NAME -o yaml --show-managed-fields`",
		Fix:   "use another mode; or, if the owner now keeps it, run the command in the message"},
	{Name: "DeploymentStrategy", Reporting: isFalse, NeedsAction: true,
		Means: "a rollout may end all pods before a new one is ready: the reporter is not added",
		Check: "`.spec.strategy`: `Recreate`, or a `maxUnavailable` that is not below the replicas",
		Fix:   "with one replica `maxUnavailable: 0`, `maxSurge: 1`; or use another mode"},
	{Name: "ReporterNotRunning", Alerts: []string{"KMSReporterNotRunning"},
		Reporting: isFalse, Alerted: true, NeedsAction: true,
		Means: "a reporter cannot start. The state of plugins on that node may be unknown",
		Check: "`kubectl describe` its pod, and its log with `--previous`",
		Fix:   "correct image, Pod Security, SCC or folder. For ConfigMaps repair the plugin; use `configSource: Annotation`",
		DoNot: "delete the API server's pod"},
	{Name: "OtherOwner", Reporting: isFalse, NeedsAction: true,
		Means: "another field manager owns `KMSPluginsDegraded`: this operator does not write it",
		Check: "who: `kubectl get RESOURCE cluster -o yaml --show-managed-fields`",
		Fix:   "stop that writer, or read the condition as its owner documents it"},
	{Name: "NoReporters", Reporting: isFalse, NeedsAction: true,
		Means: "the DaemonSet selects no node, no pod of the API server runs, or its owner has added no reporter",
		Fix:   "correct `nodeSelector`, or add the container"},
	// Reports continue, and may end.
	{Name: "SeveralPods", Reporting: isFalse, Agreed: isUnknown, NeedsAction: true,
		Means: "two API server pods have run on one node for 5 minutes, and its report is about one of them",
		Check: "`kubectl get pods -n NAMESPACE -o wide`: more replicas than nodes, or a rollout that does not end",
		Fix:   "run one replica on a node (`podAntiAffinity`), or let the rollout finish"},
	{Name: "ProgressDeadlineExceeded", Reporting: isFalse, NeedsAction: true,
		Means: "a rollout, or a pod that does not start, has not changed for 5 minutes",
		Check: "`kubectl describe` the pod, DaemonSet or Deployment in the message",
		Fix:   "correct what its events name, or resume a Deployment that is paused"},
	{Name: "TLSProfileInvalid", Reporting: isFalse, NeedsAction: true,
		Means: "the cluster's TLS profile cannot be used. The last valid one stays active, else `Intermediate`",
		Check: "`kubectl get apiserver.config.openshift.io cluster -o yaml`",
		Fix:   "correct `tlsSecurityProfile`"},
	{Name: "ReportsEncrypted", Reporting: isFalse, NeedsAction: true,
		Means: "KMS encrypts the resource with the reports (`*.*`): 3 minutes after a plugin's fault, none can be written",
		Fix:   "in the encryption config, before that entry, give the resource an entry of its own, without KMS"},
	{Name: "ConfigMapsEncrypted", Reporting: isFalse, NeedsAction: true,
		Means: "reporters mount a ConfigMap that KMS encrypts: they do not start while the plugin is unhealthy",
		Fix:   "set `configSource: Annotation` in the operator's file"},
	// What reports show.
	{Name: "WriteKeyUnknown", Agreed: isUnknown,
		Means: "an encryption config cannot be read, or changed after its API server started; or that is not a pod (k3s)",
		Check: "`KMSHealthReporting`: `SourceUnreadable`, `EncryptionConfigUnreadable` or `Forbidden`",
		Fix:   "as for that reason; else restart the API server, or after a reload remove and add its entry; on k3s none"},
	{Name: "ReportUnreadable", Alerts: []string{"KMSReportUnusable"},
		Degraded: isUnknown, Reporting: isFalse, Agreed: isUnknown, Alerted: true,
		Means: "a report does not follow the contract",
		Check: "who wrote it: `kubectl get RESOURCE cluster -o yaml --show-managed-fields`",
		Fix:   "stop the other writer; use one version of operator and reporters"},
	{Name: "ReporterStale", Alerts: []string{"KMSReporterSilent"},
		Degraded: isUnknown, Reporting: isFalse, Agreed: isUnknown, Alerted: true,
		Means: "a reporter has stopped reporting. Its plugins' state is unknown",
		Check: "the Node; the log: `Failed to write reports`, or `Failed to probe because of the reporter itself`",
		Fix:   "correct what the log names: rights, credentials, CA, network. Delete a companion or agent that hangs",
		DoNot: "restart the API server's pod to restart a sidecar"},
	{Name: "ReportsMissing", Alerts: []string{"KMSNodeNotReported"},
		Degraded: isUnknown, Reporting: isFalse, Agreed: isUnknown, Alerted: true,
		Means: "an expected node has not reported for 5 minutes, or its report was removed",
		Check: "whether a reporter runs there (an agent: the `nodeSelector`; a sidecar: its owner), and its log",
		Fix:   "start the reporter; or correct the keyIDs in its file"},
	{Name: "Unmanaged", Reporting: isUnknown,
		Means: "`managementState` is `Unmanaged`, and nodes have no reporter. Only CA, TLS settings and tokens are renewed",
		Fix:   "add reporters by hand, or set `Managed`"},
	// No action is needed.
	{Name: "NamespaceMissing", Reporting: isFalse,
		Means: "the API server's namespace does not exist, or is being deleted",
		Fix:   "none if the API server is not installed; else correct `namespace` in the operator's file"},
	{Name: "NoPods", Degraded: isFalse, Reporting: isFalse,
		Means: "no pod of the API server is on a node and reads an encryption config",
		Check: "if API servers run: `kubectl get pods -n NAMESPACE -l SELECTOR -o wide`",
		Fix:   "correct `namespace` or `podSelector` in the operator's file"},
	{Name: "Removing", Reporting: isUnknown, UnderWay: true,
		Means: "reporters are being removed. After 5 minutes without a change: `ProgressDeadlineExceeded`",
		Fix:   "wait"},
	{Name: "Progressing", Degraded: isFalse, Reporting: isUnknown, UnderWay: true,
		Means: "reporters are being delivered. After 5 minutes: `ProgressDeadlineExceeded` or `ReportsMissing`",
		Fix:   "wait, at most 5 minutes"},
	{Name: "NoPlugins", Degraded: isFalse, Reporting: isTrue,
		Means: "no pod of the API server has a KMS plugin: KMS is off"},
	{Name: "AsExpected", Degraded: isFalse, Reporting: isTrue, Agreed: isTrue,
		Means: "nothing is wrong"},
	{Name: "Settling", Agreed: isUnknown,
		Means: "all plugins have named one KEK ID for less than 180 s: an API server may still write with another",
		Fix:   "wait, at most 3 minutes"},
	{Name: "NoWriteKey", Agreed: isUnknown,
		Means: "no plugin encrypts new data: KMS is being turned on or off",
		DoNot: "remove a plugin before the stored objects are migrated"},
	{Name: "Off",
		Means: "KMS is off. Only the metric and the Event have this reason"},
	{Name: "Removed",
		Means: "removed by `managementState: Removed`. Only the metric and the Event have this reason"},
}

// ClusterOperatorReasons are the reasons of ClusterOperator/kms-health that no other condition has.
var ClusterOperatorReasons = []Row{
	{Name: "NoConfiguration",
		Means: "the operator started without a valid file, and does nothing",
		Fix:   "correct the operator's file: its ConfigMap, or your kustomization"},
	{Name: "Configuration_Invalid", Alerts: []string{"KMSHealthOperatorConfigurationRejected"},
		Means: "the operator's file has an error. The last valid one stays active until a restart",
		Check: "the operator's log has every error. Check a file: `kms-health-operator validate --config FILE`",
		Fix:   "correct the file: its ConfigMap (active within two minutes), or your kustomization",
		DoNot: "restart the operator before the file is valid"},
}

// RollupReasonOf returns the row of a reason; for an unknown reason, a row that needs action.
func RollupReasonOf(reason string) Row {
	if at := Severity(reason); at >= 0 {
		return RollupReasons[at]
	}
	return Row{Name: reason, Reporting: isFalse, NeedsAction: true}
}

// Severity is the index of a reason in RollupReasons: the lower, the more severe; -1 if it has no row.
func Severity(reason string) int {
	return slices.IndexFunc(RollupReasons, func(r Row) bool { return r.Name == reason })
}
