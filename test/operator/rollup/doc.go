// Package rollup tests what kms-health-operator makes of the reports: conditions, the removal
// of reports that are no longer needed, and no write while nothing changes.
package rollup
