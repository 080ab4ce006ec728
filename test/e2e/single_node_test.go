//go:build e2e

package e2e

import "testing"

// TestSingleNode runs the scenarios of one shared cluster with a single node, in this
// order: KMS is turned on by the first and turned off by the last, and each other one
// leaves the cluster as it found it. One alone turns KMS on itself:
// -run TestSingleNode/interval.
func TestSingleNode(t *testing.T) {
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"KMS turned on", testKMSTurnedOn},
		{"plugin unhealthy", testPluginUnhealthy},
		{"restarts while a plugin is unhealthy", testRestartsWhilePluginUnhealthy},
		{"node rebooted while the plugin is unhealthy", testNodeRebooted},
		{"key migration", testKeyMigration},
		{"API server down", testAPIServerDown},
		{"reporter cut off", testReporterCutOff},
		{"interval changed", testIntervalChange},
		{"reporter does no harm", testReporterDoesNoHarm},
		{"crashing reporter", testCrashingReporter},
		{"credential rotation", testCredentialRotation},
		{"operator killed in each step", testOperatorKilledInEachStep},
		{"upgrade and back", testUpgradeAndBack},
		{"disconnected", testDisconnected},
		{"soak", testSoak},
		{"KMS turned off", testKMSTurnedOff},
	} {
		t.Run(s.name, s.test)
	}
}
