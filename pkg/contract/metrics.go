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
	OperatorMetrics []Metric // those of each replica of the operator, besides Go's and the process's
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
		"1 for a plugin's state on a node, else 0: healthy, unhealthy, error, stale, unreadable, missing.",
		"api_server", "node", "key_id", "status")
	MetricPluginReason = ofRollup("plugin_reason", gauge,
		"1; the reason of a plugin that is unhealthy or error; Other: unknown to this version.",
		"api_server", "node", "key_id", "reason")
	MetricPluginReportAge = ofRollup("plugin_report_age_seconds", gauge,
		"Seconds since the operator saw a plugin's report change.", "api_server", "node", "key_id")
	MetricPluginKey = ofRollup("plugin_key_info", gauge,
		"1; the KEK ID that a plugin last named, and its hash as in kube-apiserver's metrics.",
		"api_server", "node", "key_id", "kek_id", "key_id_hash")
	MetricFormerKeyLost = ofRollup("plugin_former_key_lost", gauge,
		"1; a former KEK ID that a plugin no longer decrypts.",
		"api_server", "node", "key_id", "kek_id")
	MetricCondition = ofRollup("condition", gauge,
		"1 for the status of a condition, else 0: True, False, Unknown.", "api_server", "condition", "status")
	MetricWriteKey = ofRollup("write_key_info", gauge,
		"1 while KMSWriteKeyAgreed is True: the key; otherwise no series.",
		"api_server", "key_id", "kek_id", "key_id_hash")
	MetricFinding = ofRollup("finding", gauge,
		"1 for each reason of a condition; key_id is empty if it is about the whole node.",
		"api_server", "condition", "reason", "node", "key_id")
	MetricRollupErrors = ofRollup("operator_rollup_errors_total", counter,
		"Writes of conditions, and removals of reports, that failed and are retried.", "api_server")
)

// Metrics of the operator.
var (
	MetricDelivered = ofOperator("delivered", gauge,
		"1 if the reporters are delivered, or none are needed, else 0; with the most severe reason.",
		"api_server", "mode", "reason")
	MetricConfigurationValid = ofOperator("configuration_valid", gauge,
		"1 if the configuration file, as it is now, is active, else 0.")
	MetricLeader              = ofOperator("leader", gauge, "1 on the replica that runs the controllers, 0 on others.")
	MetricCredentialRemaining = ofOperator("credential_remaining_seconds", gauge,
		"Seconds until a reporter's credential in a Secret expires, by the API server's clock.", "api_server", "secret")
	MetricCredentialOverdue = ofOperator("credential_renewal_overdue_seconds", gauge,
		"Seconds since its renewal was due, by that clock; 0 before.", "api_server", "secret")
	MetricChanges = ofOperator("changes_total", counter,
		"Events: changes of objects and of reasons.", "api_server", "reason")
	MetricErrors = ofOperator("errors_total", counter, "Syncs of an API server that failed and are retried.", "api_server")

	MetricOperatorBuild = ofOperator("build_info", gauge, buildHelp, buildLabels...)
)

var buildLabels = []string{"version", "goversion", "fips140", "fips140_module"}

const buildHelp = "1, with versions and the FIPS 140-3 mode (off, on, only)."

// Metrics of the reporter.
var (
	MetricReporterPluginStatus = ofReporter("plugin_status", gauge,
		"1 for the verdict on a plugin, else 0.", "key_id", "status")
	MetricReporterPluginReason = ofReporter("plugin_reason", gauge,
		"1; the reason of a plugin that is not healthy.", "key_id", "reason")
	MetricProbes = ofReporter("probes_total", counter,
		"Probes by verdict: healthy, unhealthy, error, or gone, with nothing to observe.", "key_id", "status")
	MetricProbeFailures = ofReporter("probe_failures_total", counter,
		"Probes that the reporter itself could not make.", "key_id")
	MetricRoundTrips = ofReporter("round_trips_total", counter,
		"Round trips by result: ok, failed, or skipped, with nothing to encrypt or decrypt.", "key_id", "result")
	MetricRoundTripDuration = ofReporter("round_trip_duration_seconds", histogram,
		"How long round trips took, without skipped ones.", "key_id")
	MetricProbeDuration = ofReporter("probe_duration_seconds", histogram, "How long probes took.", "key_id")
	MetricLastProbe     = ofReporter("last_probe_timestamp_seconds", gauge, "When a plugin was last probed.", "key_id")

	MetricWrites        = ofReporter("writes_total", counter, "Writes to the operator resource, by result.", "result")
	MetricWriteDuration = ofReporter("write_duration_seconds", histogram,
		"How long writes took, all servers together.")
	MetricLastWrite = ofReporter("last_successful_write_timestamp_seconds", gauge, "When a write last succeeded.")

	MetricCertificateRemaining = ofReporter("client_certificate_remaining_seconds", gauge,
		"Seconds until the kubeconfig's client certificate expires, by the node's clock, as of the last attempt to write.")
	MetricCertificateLifetime = ofReporter("client_certificate_lifetime_seconds", gauge,
		"For how long it is valid in all.")

	MetricReloads = ofReporter("config_reloads_total", counter,
		"Changes of the file by result: applied, invalid, unreadable.", "result")
	MetricReloadGood = ofReporter("config_last_reload_successful", gauge,
		"1 if the file, as it is now, is active, else 0.")
	MetricConfigApplied = ofReporter("config_applied_timestamp_seconds", gauge,
		"When the active configuration was applied.")
	MetricConfigExpected = ofReporter("config_expected", gauge,
		"0 if the active configuration is not that of KMS_HEALTH_CONFIG_HASH, else 1.")
	MetricConfig = ofReporter("config_info", gauge, "1; the SHA-256 of the active file.", "sha256")

	MetricOutputErrors = ofReporter("output_errors_total", counter, "Failed writes to --output.")

	MetricReporterBuild = ofReporter("build_info", gauge, buildHelp, buildLabels...)
	MetricReporter      = ofReporter(
		"info", gauge, "1; join other metrics with it on job and instance to get the node.", "node",
	)
)
