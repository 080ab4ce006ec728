// Package native tests kms-health-operator together with OpenShift's own reporter.
package native
