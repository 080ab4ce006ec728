package contract

import "slices"

// Runbook is what an administrator needs to know about a reason or an alert. Its texts are plain,
// with commands and names in backquotes, and end without a full stop, so that programs can print
// them; docs/operate/runbooks.md is generated from them. Means, Check and Fix have at most 60 words.
type Runbook struct {
	// Name is the reason, or the alert for which no reason says the same. In lower case it is the
	// anchor in the page.
	Name string
	// Alerts are those that fire for this reason.
	Alerts []string
	// Means is what is so, and its impact. Check is how to find the cause; where it is not set,
	// the message has it. Fix is what to do. DoNot is what makes it worse; not set where nothing does.
	Means, Check, Fix, DoNot string
}

// RunbookGroup is a section of the page.
type RunbookGroup struct {
	Title    string
	Runbooks []Runbook
}

// RunbookOf returns the runbook of a reason of any table of this package, or of an alert; false if
// there is none.
func RunbookOf(name string) (Runbook, bool) {
	for _, g := range RunbookGroups {
		for _, r := range g.Runbooks {
			if r.Name == name || slices.Contains(r.Alerts, name) {
				return r, true
			}
		}
	}
	return Runbook{}, false
}

// RunbookGroups have every reason of Reasons, RollupReasons and ClusterOperatorReasons once, and
// the alerts.
var RunbookGroups = []RunbookGroup{
	{Title: "A plugin", Runbooks: []Runbook{
		{Name: "KMSNoHealthyPlugin",
			Means: "a key's plugin is unhealthy on at least one node and healthy on none. An API server that restarts " +
				"cannot read what this key encrypted",
			Check: "`kubectl kms-health status`. The same reason on all nodes is usually the KMS itself: network, " +
				"credentials or the key",
			Fix:   "repair the KMS first, then the plugins. No restart is needed",
			DoNot: "delete or rotate a key, or remove its provider from the encryption config"},
		{Name: "PluginUnhealthy", Alerts: []string{"KMSPluginUnhealthy", "KMSReporterPluginUnhealthy"},
			Means: "the plugin answers that it is not healthy, its answer breaks the KMS v2 API, or a round trip failed",
			Check: "the plugin's text is in the message, the rest in its log: the message ends with the command",
			Fix:   "usually at the KMS: unseal it, renew credentials, or enable the key",
			DoNot: "silence the alert for all nodes"},
		{Name: "PluginError",
			Means: "the plugin does not answer in time, its socket is missing, nothing listens on it, or `Status` fails",
			Check: "the reason of the report: `SocketMissing`, `ConnectFailed`, `Timeout`, `Unavailable`, " +
				"`Unauthenticated` or `PermissionDenied`; then the plugin's log",
			Fix: "as the block of that reason describes. A plugin that hangs may be restarted alone"},
		{Name: "PluginNotRunning", Alerts: []string{"KMSPluginNotRunning"},
			Means: "a plugin's container cannot start, or crashes and has not run for 30 s",
			Check: "the message has the container, the kubelet's reason and a command. On the node: `crictl ps -a --name " +
				"kms`",
			Fix: "correct the image or its pull secret, the arguments, or the missing object. A Secret that this plugin " +
				"encrypts must become a file of the static pod",
			DoNot: "roll its configuration out to other nodes"},
		{Name: "ConnectFailed",
			Means: "no connection to the socket: nothing listens on it, or access is denied",
			Check: "the plugin's log, and the permissions of the socket and its folder",
			Fix:   "start the plugin, or correct the permissions"},
		{Name: "SocketMissing",
			Means: "the socket is not in its folder: the plugin has ended without a crash, or has not started yet",
			Check: "the plugin's log, and the path of its socket",
			Fix: "start the plugin. If only the file was removed, restart the plugin's container before the API server " +
				"restarts"},
		{Name: "Timeout",
			Means: "no answer within the plugin's timeout, or the plugin's own deadline ended first",
			Check: "one node: its network to the KMS, the plugin's CPU limit. All nodes: the KMS",
			Fix:   "restore the network to the KMS, or raise the CPU limit"},
		{Name: "Unauthenticated",
			Means: "the KMS does not accept the plugin's credentials",
			Check: "the plugin's log; when the credentials expire",
			Fix:   "renew the plugin's credentials"},
		{Name: "PermissionDenied",
			Means: "the KMS accepts the credentials, and denies the call",
			Check: "the plugin's log; the KMS's policy for this key",
			Fix:   "allow encrypt and decrypt with the key again"},
		{Name: "Throttled",
			Means: "the KMS or the plugin received too many calls, or a quota is used up",
			Check: "the KMS's metrics of calls, and its quotas",
			Fix:   "raise the quota, or stop the other caller"},
		{Name: "Unavailable",
			Means: "the plugin does not reach its KMS, or the connection broke during a call",
			Check: "the network, DNS and proxy from this node to the KMS; the state of the KMS",
			Fix:   "start or unseal the KMS, or restore the network"},
		{Name: "KeyUnavailable",
			Means: "the key does not exist in the KMS, or is disabled",
			Check: "the key's state in the KMS",
			Fix:   "enable or restore the key. A key that is scheduled for deletion can usually be restored",
			DoNot: "create another key in its place"},
		{Name: "ProtocolViolation",
			Means: "the answer breaks the KMS v2 API (version, `key_id`, size or annotations), or a call is not " +
				"implemented",
			Check: "the detail of the report, the plugin's version",
			Fix:   "install another version of the plugin"},
		{Name: "ReportedUnhealthy",
			Means: "the plugin itself reports that it is not healthy, without a more specific cause",
			Check: "the plugin's text in the report, and its log",
			Fix:   "correct what the plugin's text describes"},
		{Name: "RoundTripMismatch",
			Means: "a round trip returned other bytes or another key, or earlier data can no longer be decrypted: data " +
				"may be lost",
			Check: "whether the KMS or the key was replaced, by the KMS's own log",
			Fix:   "restore the earlier key first",
			DoNot: "rotate, migrate, or restart an API server: only its cache may still have the data"},
		{Name: "KMSNoAPIServerReachesPlugin",
			Means: "no API server has had a valid `Status` of this plugin for 3 minutes, by their own metrics. They " +
				"reject new encrypted objects",
			Check: "as for `KMSNoHealthyPlugin`. If reports are healthy, reporters and API servers use different sockets, " +
				"or `apiserver_envelope_encryption_invalid_key_id_from_status_total` counts rejected answers",
			Fix:   "as for `KMSNoHealthyPlugin`",
			DoNot: "restart an API server to make it connect"},
		{Name: "KMSAPIServerLacksPlugin",
			Means: "this API server has had no valid `Status` for 3 minutes, and rejects what it would encrypt with the " +
				"plugin",
			Check: "the node with the address in `instance`. If its plugin is healthy, compare the sockets of the " +
				"encryption config and of the reporter; the API server's log",
			Fix:   "as for `PluginUnhealthy`",
			DoNot: "restart this API server"},
		{Name: "KMSCallsFail",
			Means: "calls fail. `Status`: encryption stops after 3 minutes. `Encrypt`: new objects are rejected. " +
				"`Decrypt`: objects that are not cached cannot be read",
			Check: "the panel KMS calls of the dashboard. `DeadlineExceeded` is the provider's timeout, " +
				"`unknown-non-grpc` no connection",
			Fix:   "as for `PluginUnhealthy`. If only `Decrypt` fails, restore the right to decrypt or the earlier key",
			DoNot: "rotate the key"},
		{Name: "KMSCallsSlow",
			Means: "half of the calls take more than 1 s. A restarting API server decrypts each data key in turn, and " +
				"becomes ready late",
			Check: "one node: its network or the plugin's CPU limit. All nodes: the KMS, throttling",
			Fix:   "restore the network to the KMS, or raise the plugin's limits or the KMS's quota",
			DoNot: "raise the provider's timeout now: that rolls out all API servers"},
	}},
	{Title: "The write key", Runbooks: []Runbook{
		{Name: "KeysDiffer", Alerts: []string{"KMSWriteKeysDiffer"},
			Means: "nodes report different KEK IDs for the write key. Normal for a moment during a rotation",
			Check: "`kubectl kms-health status` shows which node differs: its plugin caches the key's version, is " +
				"configured otherwise, or reaches another KMS",
			Fix:   "compare the configurations. If equal, restart that plugin alone while the others are healthy",
			DoNot: "delete or disable a version of the key, or start another rotation"},
		{Name: "WriteKeyNotDeployed", Alerts: []string{"KMSWriteKeyNotDeployed"},
			Means: "an API server, also one that is being deleted, writes with another key or without KMS. Normal during " +
				"a rollout",
			Check: "`kubectl get co` and `.status.nodeStatuses`; elsewhere the nodes' files of " +
				"`--encryption-provider-config`",
			Fix: "correct what stops the rollout; or restart that API server while its plugins are healthy. Then migrate " +
				"again",
			DoNot: "delete the earlier key or its provider"},
		{Name: "WriteKeyUnknown",
			Means: "an encryption config cannot be read, or a Secret without revisions changed after the API server " +
				"started: it is not known what it writes with",
			Check: "`KMSHealthReporting`: `SourceUnreadable`, `EncryptionConfigUnreadable` or `Forbidden`",
			Fix:   "as for that reason. Restart an API server that is older than its Secret",
			DoNot: "start a rotation"},
		{Name: "NoWriteKey",
			Means: "KMS is being turned off: no plugin encrypts new data",
			Fix:   "no action needed",
			DoNot: "remove a plugin before the stored objects are migrated"},
		{Name: "KMSOldKeyStillRead",
			Means: "data of an earlier key is still read. After that key is deleted, it is lost",
			Check: "the query in `docs/reference/alerts.md`. The hash of a key ID: `printf %s KEY_ID | sha256sum`",
			Fix: "migrate the stored objects; OpenShift does after a rotation. Elsewhere: `kubectl get secrets -A -o json " +
				"| kubectl replace -f -`",
			DoNot: "delete the old key before the migration and this alert have ended, or while a backup of etcd needs it"},
	}},
	{Title: "Reports", Runbooks: []Runbook{
		{Name: "KMSNothingReported",
			Means: "nothing valid is reported about any plugin of this API server",
			Check: "`KMSHealthReporting`, then the reporters' logs (`Failed to write reports`). All reports stale at " +
				"once: the API server's clock. `kubectl get --raw /metrics | grep ^apiserver_envelope` has the API server's " +
				"own view",
			Fix:   "correct what the reason or the log names",
			DoNot: "delete the conditions `KMSHealthReporter_…`: they show the last state"},
		{Name: "ReporterStale", Alerts: []string{"KMSReporterSilent"},
			Means: "a reporter has stopped reporting. Its plugins' state is unknown",
			Check: "the reporter's log: `Failed to write reports` has the result. `Failed to probe because of the " +
				"reporter itself`: no descriptors or memory left. No line for minutes: no CPU time",
			Fix: "correct what the log names: rights, credentials, CA or network. If it hangs, delete a companion's or " +
				"agent's pod",
			DoNot: "restart the API server's pod to restart a sidecar"},
		{Name: "ReportsMissing", Alerts: []string{"KMSNodeNotReported"},
			Means: "an expected node has not reported for 5 minutes, or its report was removed",
			Check: "whether a reporter runs there: an agent needs the `nodeSelector`, a sidecar its owner. If it runs: " +
				"its log. A Node that is not Ready: that first",
			Fix:   "start the reporter; or correct `keyIDs` in the operator's file",
			DoNot: "edit the reporters' ConfigMaps"},
		{Name: "OtherPlugins", Alerts: []string{"KMSReporterConfigurationUnexpected"},
			Means: "the report is about other plugins than those of the pod; these entries do not count. Normal during a " +
				"rollout",
			Check: "the reporter's log has both hashes; whether a rollout of the API server or of the agents is stuck",
			Fix: "wait a minute for the kubelet to update the file; let the rollout finish; or delete the companion or " +
				"agent",
			DoNot: "edit the annotation `kmshealth.openshift.io/config-hash`"},
		{Name: "ReportUnreadable", Alerts: []string{"KMSReportUnusable"},
			Means: "a report does not follow the contract",
			Check: "`kubectl kms-health status NODE` shows who wrote it",
			Fix: "stop the other writer; use one version of operator and reporters. The reporter's next write repairs an " +
				"edit by hand"},
		{Name: "NoPods",
			Means: "no pod of the API server is on a node, so no plugin is judged",
			Check: "if API servers run: `kubectl get pods -n NAMESPACE -l SELECTOR -o wide`",
			Fix:   "correct `namespace` or `podSelector` in the operator's file"},
		{Name: "NoPlugins",
			Means: "no pod of the API server has a KMS plugin: KMS is off",
			Fix:   "no action needed"},
		{Name: "AsExpected",
			Means: "nothing is wrong",
			Fix:   "no action needed"},
		{Name: "KMSReporterWritesFail",
			Means: "all writes of a reporter fail: its node's report becomes stale. `/kms-providers` of the reporter has " +
				"the current state",
			Check: "`result` in its log",
			Fix: "correct rights (`forbidden`), token (`unauthorized`, `bad_credentials`), CA (`tls`), address or network " +
				"policy (`unreachable`, `timeout`), CRD or object (`no_resource`, `no_object`)",
			DoNot: "bind wider rights: a reporter needs `patch` of one `/status`"},
		{Name: "KMSReporterConfigurationRejected",
			Means: "a reporter rejects its file. The last valid one stays active; without one it probes nothing",
			Check: "its log has every error. `kms-health-reporter --validate --config FILE` checks a file",
			Fix:   "correct the file; or use one version of operator and reporter",
			DoNot: "restart the reporter before the file is valid"},
	}},
	{Title: "Delivery of reporters", Runbooks: []Runbook{
		{Name: "KMSReporterDeliveryFails",
			Means: "reporters are not delivered as configured. Plugins and API servers are not affected",
			Check: "the reason in the description or in `KMSHealthReporting`: each has a block here. If that condition " +
				"cannot be written: the operator's log",
			Fix:   "as the block of the reason describes. The operator retries at least once a minute",
			DoNot: "edit objects of the operator"},
		{Name: "OtherInstallation",
			Means: "an operator in another namespace owns the API server. Nothing is changed, no condition is written, " +
				"and `/readyz` fails",
			Fix: "remove one of the two"},
		{Name: "ResourceMissing",
			Means: "the operator resource of the API server does not exist, so nothing can be reported. Only the " +
				"ClusterOperator, the metric and an Event have this",
			Check: "`kubectl get RESOURCE cluster`, with the resource in the message",
			Fix:   "create it, or remove the API server from the configuration"},
		{Name: "Forbidden",
			Means: "a right is missing, or admission (a policy, a quota, a webhook) denied a request",
			Fix: "apply the manifests, with the component of the mode. A policy of this project: allow the folder or name " +
				"in it",
			DoNot: "grant `cluster-admin`: the policies would still deny the request"},
		{Name: "Refused",
			Means: "the API server rejects an object as invalid, for example with the defaults of a LimitRange",
			Fix:   "allow the object in that namespace"},
		{Name: "RequestFailed",
			Means: "a request failed for another reason. It is retried with a backoff of up to 10 s",
			Check: "the message. `context deadline exceeded`: a webhook that does not answer, or an unhealthy KMS plugin",
			Fix:   "repair that webhook or plugin"},
		{Name: "PolicyMissing",
			Means: "the admission policy that bounds reporters does not exist, or is of another version. No reporter is " +
				"given a right",
			Check: "`kubectl get validatingadmissionpolicy kms-health-reporter`",
			Fix:   "apply the manifests of the operator's version",
			DoNot: "delete the policy while reporters run"},
		{Name: "CAUnreadable",
			Means: "the API server's CA cannot be read. The last one stays active; without one nothing is delivered",
			Fix:   "make it valid PEM",
			DoNot: "delete the operator's pod during a plugin outage"},
		{Name: "SourceUnreadable",
			Means: "an object cannot be read. What was read before stays active; if it is the list of pods, " +
				"`KMSPluginsDegraded` is Unknown",
			Check: "the message. A Secret that cannot be decrypted is a consequence of an unhealthy plugin; else a right " +
				"is missing",
			Fix: "repair the plugin first; or apply the manifests"},
		{Name: "ReportsEncrypted",
			Means: "kube-apiserver encrypts the resource that has the reports with KMS, as with `*.*`: from 3 minutes " +
				"after its plugin becomes unhealthy nothing can be written to it, reports included",
			Check: "the resources in the encryption config",
			Fix:   "give that resource an entry of its own, without KMS, before that one"},
		{Name: "ProviderNotProbed",
			Means: "a `kms` provider in the encryption config cannot be probed, for example since it is KMS v1. Its " +
				"health is not known, so `KMSPluginsDegraded` is Unknown",
			Fix: "use KMS v2; correct the endpoint or the timeout"},
		{Name: "EncryptionConfigUnreadable",
			Means: "the Secret has no valid EncryptionConfiguration. The last plugin set stays active",
			Fix:   "correct the Secret, or `encryptionConfig.key` in the operator's file",
			DoNot: "delete the Secret: that means that KMS is off"},
		{Name: "DeploymentMissing",
			Means: "the API server's Deployment does not exist",
			Check: "`kubectl get deployment -n NAMESPACE`",
			Fix:   "create it, or correct `deployment` in the operator's file"},
		{Name: "SocketVolumeMissing",
			Means: "no volume of a pod has a plugin's socket",
			Fix:   "mount a volume at that folder, or correct `container` in the operator's file"},
		{Name: "InjectionReverted",
			Means: "the owner of the Deployment removed the reporter. It is not added again: each revert is a rollout",
			Check: "who: `kubectl get deployment -n NAMESPACE NAME -o yaml --show-managed-fields`",
			Fix: "use another mode; or, if the owner now keeps it, `kubectl annotate clusterrole " +
				"kms-health-reporter-API-SERVER kmshealth.openshift.io/state-`",
			DoNot: "stop the owner"},
		{Name: "DeploymentStrategy",
			Means: "a rollout may end all pods before a new one is ready (`Recreate`, or `maxUnavailable` not below the " +
				"replicas). The reporter is not added",
			Check: "`.spec.strategy` of the Deployment",
			Fix:   "with one replica `maxUnavailable: 0`, `maxSurge: 1`; or use another mode"},
		{Name: "DeploymentPaused",
			Means: "the Deployment is paused, so the reporter's container is not rolled out",
			Fix:   "resume the rollout"},
		{Name: "ReporterNotRunning", Alerts: []string{"KMSReporterNotRunning"},
			Means: "a reporter cannot start. The state of plugins on that node may be unknown",
			Check: "the message has pod, node and the kubelet's reason",
			Fix: "correct what that names: the image (`image` in the operator's file), Pod Security or SCC, a folder, a " +
				"ConfigMap that cannot be mounted (repair the plugin first, then `configSource`)",
			DoNot: "delete the API server's pod"},
		{Name: "NoReporters",
			Means: "there is no reporter: the DaemonSet selects no node, no pod of the API server runs, or its owner has " +
				"added none",
			Fix: "correct `nodeSelector`, or add the container"},
		{Name: "ProgressDeadlineExceeded",
			Means: "what the message names was under way for 5 minutes without a change, for example a rollout, or a pod " +
				"that does not start",
			Check: "`kubectl describe` the pod, DaemonSet or Deployment in the message",
			Fix:   "correct what its events name"},
		{Name: "RenewalFailed", Alerts: []string{"KMSReporterCredentialExpires"},
			Means: "a token could not be created or renewed. After it expires, its reporters cannot write",
			Check: "the message has the error and the date of expiry",
			Fix:   "add the missing right or component. If a Secret cannot be read: repair the plugin that encrypts it",
			DoNot: "delete the Secret"},
		{Name: "TLSProfileInvalid",
			Means: "the cluster's TLS profile is invalid or cannot be read. The last valid one stays active, else " +
				"`Intermediate`",
			Check: "`kubectl get apiserver.config.openshift.io cluster -o yaml`",
			Fix:   "correct `tlsSecurityProfile`"},
		{Name: "ConfigMapsEncrypted",
			Means: "reporters' pods mount their ConfigMap, and kube-apiserver encrypts ConfigMaps with KMS: such a pod " +
				"does not start while the plugin is unhealthy",
			Check: "the resources in the encryption config",
			Fix:   "set `configSource: Annotation` in the operator's file"},
		{Name: "Unmanaged",
			Means: "`managementState: Unmanaged` is set, and the nodes in the message have no reporter. Only the token of " +
				"sidecars is renewed",
			Fix: "add reporters by hand, or set `Managed`"},
		{Name: "NamespaceMissing",
			Means: "the API server's namespace does not exist",
			Fix:   "no action needed if the API server is not installed; else correct `namespace` in the operator's file"},
		{Name: "Removing",
			Means: "the operator removes reporters. After 5 minutes without a change this becomes " +
				"`ProgressDeadlineExceeded`",
			Fix: "wait"},
		{Name: "Progressing",
			Means: "reporters are delivered, or a node has not reported yet: its plugins are not judged. Without a change " +
				"for 5 minutes this becomes `ProgressDeadlineExceeded` or `ReportsMissing`",
			Fix: "wait, at most 5 minutes"},
		{Name: "Off",
			Means: "KMS is off. Only the metric and the Event have this reason",
			Fix:   "no action needed"},
		{Name: "Removed",
			Means: "everything is removed, by `managementState: Removed`. Only the metric and the Event have this reason",
			Fix:   "no action needed"},
	}},
	{Title: "The operator", Runbooks: []Runbook{
		{Name: "KMSHealthOperatorAbsent",
			Means: "no operator is elected, or none can be scraped. Plugins and reporters continue; the conditions may be " +
				"out of date",
			Check: "`kubectl kms-health status`, which needs no operator; then pods, log and Lease `kms-health-operator`. " +
				"If a pod holds the Lease, Prometheus cannot scrape it",
			Fix:   "correct what events or log name. A ConfigMap or Secret cannot be read: repair the plugin first",
			DoNot: "delete an operator's pod during a plugin outage"},
		{Name: "NoConfiguration",
			Means: "the operator started without a valid file, and does nothing",
			Fix:   "correct the ConfigMap `kms-health-operator-config`"},
		{Name: "Configuration_Invalid", Alerts: []string{"KMSHealthOperatorConfigurationRejected"},
			Means: "the operator's file has an error. The last valid one stays active until a restart",
			Check: "the operator's log has every error. Check a file: `kms-health-operator validate --config FILE`",
			Fix:   "correct the ConfigMap `kms-health-operator-config`. It is active within two minutes",
			DoNot: "restart the operator before the file is valid"},
		{Name: "CANotCurrent", Alerts: []string{"KMSHealthOperatorCAExpires"},
			Means: "with `start-during-plugin-outage`: the CA in the operator's Deployment ends within 30 days, or cannot " +
				"be kept current. When it has ended, the operator cannot connect",
			Check: "the message; the ConfigMap `kube-root-ca.crt` in the operator's namespace",
			Fix: "rotate the API server's CA; apply the manifests, if a request is refused. If no operator connects, set " +
				"the CA again as in the installation",
			DoNot: "remove the annotation"},
		{Name: "KMSRollupNotWritten",
			Means: "the operator cannot write conditions: they may be out of date. Its metrics and alerts are current",
			Check: "the operator's log, for `roll-up`",
			Fix:   "rejected or forbidden: apply the manifests of this version. No answer: see the API server",
			DoNot: "remove the policies `kms-health-operator-status` and `kms-health-reporter`"},
	}},
}
