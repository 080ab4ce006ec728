package controlplane

// Named here only so that go.mod keeps the module: the manifests are read from
// this folder of it, and its code is not used.
import _ "github.com/openshift/api/operator/v1/zz_generated.crd-manifests"
