// Package native tests kms-health-operator beside OpenShift's own reporter.
package native
