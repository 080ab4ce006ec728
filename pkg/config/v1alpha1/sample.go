package v1alpha1

import _ "embed" // for the sample

// ReporterSample is a file that explains every field of the reporter's
// configuration, and is a valid one as it stands.
//
//go:embed reporter-sample.yaml
var ReporterSample []byte

// OperatorOpenShift is the operator's file for OpenShift.
//
//go:embed operator-openshift.yaml
var OperatorOpenShift []byte

// OperatorKubernetes is the operator's file for a plain control plane.
//
//go:embed operator-kubernetes.yaml
var OperatorKubernetes []byte
