package contract

// Conditions are all that this project writes to an operator resource. docs/reference/conditions.md is generated from
// them.
var Conditions = []Row{
	{Name: ConditionTypePrefix + "<node>",
		Means: "the report of this node, in the message",
		True:  "always: tools that combine conditions would take a False of one node for the cluster"},
	{Name: PluginsDegraded,
		Means: "whether a KMS plugin is unhealthy. On OpenShift the ClusterOperator is `Degraded` after 2 minutes",
		True: "a fresh report is `unhealthy` or `error`; a plugin's container cannot start; or kube-apiserver runs without " +
			"an encryption config",
		False: "all expected plugins are freshly reported as healthy; nothing was reported yet; or no pod has a plugin",
		Unknown: "a node stopped reporting, its report cannot be read, a provider cannot be probed, or pods cannot be " +
			"listed"},
	{Name: HealthReporting,
		Means: "whether reporters are delivered and report",
		True: "every expected node reports on the plugins of its pod, and nothing is wrong or under way; or no pod has " +
			"a plugin",
		False:   "something prevents reports, or will. The message has the mode, and why",
		Unknown: "reporters are being delivered or removed, or a node's silence is excused"},
	{Name: WriteKeyAgreed,
		Means: "whether all API servers write with one key",
		True: "every API server writes with the write key, and all its plugins, healthy and freshly reported, have " +
			"named one KEK ID for 180 s",
		False: "not every API server writes as configured yet, some resource is written otherwise, or the KEK IDs differ",
		Unknown: "a node is missing, silent or unhealthy, the 180 s are not over, what one writes with is not known, or " +
			"no plugin writes"},
}
