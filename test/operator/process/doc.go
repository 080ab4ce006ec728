// Package process tests kms-health-operator with dependencies that start late, are missing,
// forbidden or unreadable, and with restarts and wrong clocks.
package process
