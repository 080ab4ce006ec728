// Package commands tests what people get from a cluster with kms-health-operator: the
// ClusterOperator, kubectl kms-health, and a must-gather.
package commands
