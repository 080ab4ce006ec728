// Package rollup tests how kms-health-operator rolls up reports: its conditions, the removal of
// reports that are no longer needed, and that it writes nothing while nothing changes.
package rollup
