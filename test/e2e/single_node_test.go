//go:build e2e

package e2e

import "testing"

// TestSingleNode runs the scenarios of one shared cluster with a single node, in this
// order: KMS is turned on by the first and turned off by the last, and each other one
// leaves the cluster as it found it. One alone turns KMS on itself:
// -run TestSingleNode/plugin. A long one is left to the full run.
func TestSingleNode(t *testing.T) {
	for _, s := range []struct {
		name string
		test func(*testing.T)
		long bool
	}{
		{name: "KMS turned on", test: testKMSTurnedOn},
		{name: "plugin unhealthy", test: testPluginUnhealthy},
		{name: "restarts while a plugin is unhealthy", test: testRestartsWhilePluginUnhealthy},
		{name: "node rebooted while the plugin is unhealthy", test: testNodeRebooted},
		{name: "key migration", test: testKeyMigration},
		{name: "API server down", test: testAPIServerDown},
		{name: "reporter cut off", test: testReporterCutOff, long: true},
		{name: "reporter does no harm", test: testReporterDoesNoHarm},
		{name: "credential rotation", test: testCredentialRotation},
		{name: "operator killed in each step", test: testOperatorKilledInEachStep, long: true},
		{name: "upgrade and back", test: testUpgradeAndBack, long: true},
		{name: "KMS turned off", test: testKMSTurnedOff},
	} {
		t.Run(s.name, func(t *testing.T) {
			if s.long && testing.Short() {
				t.Skip("left to the full run")
			}
			s.test(t)
		})
	}
}
