package contract

// Metric is one of the programs' own metrics.
type Metric struct {
	Name   string
	Type   string // gauge, counter or histogram
	Labels []string
	Help   string
}

// The tables of the metrics.
var (
	RollupMetrics   []Metric // those of the operator's elected replica alone
	OperatorMetrics []Metric // those of each replica of the operator, beside Go's and the process's
	ReporterMetrics []Metric // those of the reporter
)

const (
	gauge     = "gauge"
	counter   = "counter"
	histogram = "histogram"
)

func metric(table *[]Metric, name, kind, help string, labels ...string) Metric {
	m := Metric{Name: name, Type: kind, Labels: labels, Help: help}
	*table = append(*table, m)
	return m
}

func ofRollup(name, kind, help string, labels ...string) Metric {
	return metric(&RollupMetrics, "kms_health_"+name, kind, help, labels...)
}

func ofOperator(name, kind, help string, labels ...string) Metric {
	return metric(&OperatorMetrics, "kms_health_operator_"+name, kind, help, labels...)
}

func ofReporter(name, kind, help string, labels ...string) Metric {
	return metric(&ReporterMetrics, "kms_health_reporter_"+name, kind, help, labels...)
}

// Metrics of the roll-up.
var (
	MetricPluginStatus = ofRollup("plugin_status", gauge,
		"1 for the state of a plugin on a node, 0 for the others: healthy, unhealthy, error, stale, unreadable, missing.",
		"api_server", "node", "key_id", "status")
	MetricPluginReason = ofRollup("plugin_reason", gauge,
		"1; the reason of a plugin that is unhealthy or error: Other if this version does not know it.",
		"api_server", "node", "key_id", "reason")
	MetricPluginReportAge = ofRollup("plugin_report_age_seconds", gauge,
		"Seconds since the operator saw a plugin's report change.", "api_server", "node", "key_id")
	MetricPluginKey = ofRollup("plugin_key_info", gauge,
		"1; the KEK ID that a plugin last named, and sha256: with its SHA-256, as in kube-apiserver's metrics.",
		"api_server", "node", "key_id", "kek_id", "key_id_hash")
	MetricFormerKeyLost = ofRollup("plugin_former_key_lost", gauge,
		"1; a former KEK ID under which a plugin encrypted, and no longer decrypts.",
		"api_server", "node", "key_id", "kek_id")
	MetricCondition = ofRollup("condition", gauge,
		"1 for the status of a condition, 0 for the others: True, False, Unknown.", "api_server", "condition", "status")
	MetricWriteKey = ofRollup("write_key_info", gauge,
		"1 while KMSWriteKeyAgreed is True: the key that all API servers write with; otherwise no series.",
		"api_server", "key_id", "kek_id", "key_id_hash")
	MetricFinding = ofRollup("finding", gauge,
		"1 for each reason why a condition is as it is; key_id is empty if it is about the whole node.",
		"api_server", "condition", "reason", "node", "key_id")
	MetricRollupErrors = ofRollup("operator_rollup_errors_total", counter,
		"Writes of a roll-up, and removals of a report, that failed and are retried.", "api_server")
)

// Metrics of the operator.
var (
	MetricDelivered = ofOperator("delivered", gauge,
		"1 if the reporters are delivered, or none are to be (Off, Removed, Unmanaged), else 0; with the most severe reason.",
		"api_server", "mode", "reason")
	MetricConfigurationValid = ofOperator("configuration_valid", gauge,
		"1 if the configuration file, as it is now, is active; 0 if an earlier one is, or none.")
	MetricCAExpiry = ofOperator("ca_expiry_timestamp_seconds", gauge,
		"With --keep-ca: when the CA in the operator's Deployment that verifies the API server ends; 0: none in it does.")
	MetricLeader           = ofOperator("leader", gauge, "1 on the replica that runs the controllers, 0 on others.")
	MetricCredentialExpiry = ofOperator("credential_expiry_timestamp_seconds", gauge,
		"When a reporter's credential in a Secret expires.", "api_server", "secret")
	MetricCredentialRenewal = ofOperator("credential_renewal_timestamp_seconds", gauge,
		"When it is due to be renewed, at half of its lifetime: in the past while that fails.", "api_server", "secret")
	MetricChanges = ofOperator("changes_total", counter,
		"Events: objects that the operator created, changed or deleted, and reasons that changed.", "api_server", "reason")
	MetricErrors = ofOperator("errors_total", counter, "Syncs of an API server that failed and are retried.", "api_server")

	MetricOperatorBuild = ofOperator("build_info", gauge, buildHelp, BuildLabels...)
)

// BuildLabels are those of a program's metric …_build_info.
var BuildLabels = []string{"version", "goversion", "fips140", "fips140_module"}

const buildHelp = "1, with the versions of the program, of Go and of its cryptographic module, and the FIPS 140-3 " +
	"mode (off, on, only)."

// Metrics of the reporter.
var (
	MetricReporterPluginStatus = ofReporter("plugin_status", gauge,
		"1 for the verdict on a plugin, that of the round trip included, 0 for the others.", "key_id", "status")
	MetricReporterPluginReason = ofReporter("plugin_reason", gauge,
		"1, with the reason of a plugin that is not healthy; no series while it is.", "key_id", "reason")
	MetricProbes = ofReporter("probes_total", counter,
		"Probes by verdict: healthy, unhealthy, error, or gone where there is nothing to observe.", "key_id", "status")
	MetricProbeFailures = ofReporter("probe_failures_total", counter,
		"Probes that the reporter itself could not make, for want of descriptors or memory.", "key_id")
	MetricRoundTrips = ofReporter("round_trips_total", counter,
		"Round trips by result: ok, failed, or skipped where nothing could be encrypted or decrypted.", "key_id", "result")
	MetricRoundTripDuration = ofReporter("round_trip_duration_seconds", histogram,
		"How long round trips took that were not skipped.", "key_id")
	MetricProbeDuration = ofReporter("probe_duration_seconds", histogram, "How long probes took.", "key_id")
	MetricLastProbe     = ofReporter("last_probe_timestamp_seconds", gauge, "When a plugin was last probed.", "key_id")

	MetricWrites        = ofReporter("writes_total", counter, "Writes to the operator resource, by result.", "result")
	MetricWriteDuration = ofReporter("write_duration_seconds", histogram,
		"How long writes took, all servers that were tried together.")
	MetricLastWrite = ofReporter("last_successful_write_timestamp_seconds", gauge, "When a write last succeeded.")

	MetricCertificateBegin = ofReporter("client_certificate_not_before_timestamp_seconds", gauge,
		"Since when the client certificate of the kubeconfig is valid; no series without one.")
	MetricCertificateEnd = ofReporter("client_certificate_not_after_timestamp_seconds", gauge,
		"Until when it is valid: after that nothing can be written.")

	MetricReloads = ofReporter("config_reloads_total", counter,
		"Changes of the configuration file by result: applied, invalid, or unreadable.", "result")
	MetricReloadGood = ofReporter("config_last_reload_successful", gauge,
		"1 if the configuration file, as it is now, is active.")
	MetricConfigApplied = ofReporter("config_applied_timestamp_seconds", gauge,
		"When the active configuration was applied.")
	MetricConfigExpected = ofReporter("config_expected", gauge,
		"1 if the active configuration is that of KMS_HEALTH_CONFIG_HASH, or this is not set; else 0.")
	MetricConfig = ofReporter("config_info", gauge, "1, with the SHA-256 of the active configuration file.", "sha256")

	MetricOutputErrors = ofReporter("output_errors_total", counter, "Failed writes to --output.")

	MetricReporterBuild = ofReporter("build_info", gauge, buildHelp, BuildLabels...)
	MetricReporter      = ofReporter(
		"info", gauge, "1; other metrics get the node by a join with this one on job and instance.", "node",
	)
)
