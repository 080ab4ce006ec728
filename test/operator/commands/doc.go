// Package commands tests the tools of administrators on a cluster with kms-health-operator: the
// ClusterOperator, kubectl kms-health, and a must-gather.
package commands
