// Package process tests kms-health-operator in its surroundings: what starts late, is
// missing, forbidden or unreadable, restarts, and a wrong clock.
package process
