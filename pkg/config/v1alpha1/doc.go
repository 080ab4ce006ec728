// Package v1alpha1 is the file format of kms-health,
// kmshealth.openshift.io/v1alpha1: types, strict decoding, defaults and
// validation.
//
// Decoding reports every mistake at once, each with its path and value, and
// returns either a complete configuration or none: there is no half-accepted
// file. The package reads no file itself.
//
// A field of a type without +default or +optional is required.
package v1alpha1

//go:generate go run ../../../test/tools/configref . ../../../docs/reference/configuration.md

import _ "embed" // for the samples

// ReporterSample explains every field of the reporter's file, and is valid as it stands.
// OperatorOpenShift and OperatorKubernetes are the operator's file for OpenShift, and for a plain
// control plane.
var (
	//go:embed reporter-sample.yaml
	ReporterSample []byte
	//go:embed operator-openshift.yaml
	OperatorOpenShift []byte
	//go:embed operator-kubernetes.yaml
	OperatorKubernetes []byte
)
