package contract

// PreflightDegraded is the condition of OpenShift's own preflight of a new KMS configuration.
const PreflightDegraded = "EncryptionKMSPreflightControllerDegraded"

// openShiftConditions are OpenShift's own conditions about KMS, by their type.
var openShiftConditions = []Row{
	{Name: PreflightDegraded,
		Means: "OpenShift's preflight (`Status`, `Encrypt`, `Decrypt`) of a new KMS configuration fails: no new key is made",
		Check: "the message; `encryptionStatus.preflight` of the operator resource",
		Fix: "correct the KMS configuration or its credentials (an operator's plugin: in its resource, " +
			"`VaultKMSConfig`)",
		DoNot: "turn the former configuration off"},
	{Name: "KmsHealthReportsDegraded",
		Means: "OpenShift's own reports on plugins are incomplete or wrong: it does not rotate by them",
		Check: "the message; `encryptionStatus.healthReports` of the operator resource",
		Fix:   "as for the plugin in the message; if only a report is wrong, as its container's log says",
		DoNot: "edit the reports by hand"},
	{Name: "KmsHealthReportsProgressing",
		Means: "OpenShift waits until plugins agree on a key. After 5 minutes it rotates and migrates by itself",
		Check: "`kubectl get secrets -n openshift-config-managed`: annotations of `encryption-key-…` have the target",
		Fix:   "wait until all plugins name the new key; then until the migration ends",
		DoNot: "delete the former key, or start another rotation"},
	{Name: "Encrypted",
		Means: "OpenShift encrypts data for the first time, or decrypts it, or encryption is off",
		Check: "the message; what is stored: `kubectl kms-health stored-keys`",
		Fix:   "wait. `EncryptionMigrationControllerProgressing` shows a migration, also of a rotation",
		DoNot: "remove a key or its plugin before that"},
}

// UnhealthyDoNot is what not to do while a plugin is unhealthy, where its own block has nothing.
const UnhealthyDoNot = "restart, drain, reboot or upgrade an API server or its node, or rotate keys"
