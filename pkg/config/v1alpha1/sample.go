package v1alpha1

import _ "embed" // for the sample

// ReporterSample is a file that explains every field of the reporter's
// configuration, and is a valid one as it stands.
//
//go:embed reporter-sample.yaml
var ReporterSample []byte
