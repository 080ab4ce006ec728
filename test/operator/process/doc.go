// Package process tests kms-health-operator in its surroundings: what starts late, is
// missing, forbidden or unreadable, outages of the API server, and its metrics.
package process
