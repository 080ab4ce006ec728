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
