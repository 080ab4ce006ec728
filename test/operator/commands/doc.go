// Package commands tests what administrators use on a cluster with kms-health-operator: the ClusterOperator,
// kubectl kms-health, requests for round trips, rendered files, and a must-gather.
package commands
