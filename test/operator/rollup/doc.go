// Package rollup tests how kms-health-operator rolls up reports: its conditions, the removal of
// reports that are no longer needed, that it writes nothing while nothing changes, and OpenShift's own
// reporter beside ours.
package rollup
