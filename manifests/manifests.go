// Package manifests embeds installation manifests: render prints them, and the operator checks that the cluster has the
// policy. It never applies them.
package manifests

import _ "embed"

//go:generate go run ../test/tools/tables ..

// ReporterPolicy is the ValidatingAdmissionPolicy that bounds the writes of the
// reporters' identities, and its binding, as YAML.
//
//go:embed common/0000_50_kms-health-operator_03_reporter-status-policy.yaml
var ReporterPolicy []byte

// KMSHealthCRD is the CRD of the objects that have the reports on clusters without
// OpenShift's operator resources, as YAML.
//
//go:embed kubernetes/crd.yaml
var KMSHealthCRD []byte
