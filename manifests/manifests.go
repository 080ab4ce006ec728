// Package manifests embeds the installation manifests that the operator compares:
// it prints them (render) and checks that the cluster has them. It never applies them.
package manifests

import _ "embed"

// ReporterPolicy is the ValidatingAdmissionPolicy that bounds the writes of the
// reporters' identities, and its binding, as YAML.
//
//go:embed common/0000_50_kms-health-operator_03_reporter-status-policy.yaml
var ReporterPolicy []byte
