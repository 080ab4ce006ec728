package controlplane

// Named here only so that go.mod keeps the module: the manifests are read from
// these folders of it, and its code is not used.
import (
	_ "github.com/openshift/api/config/v1/zz_generated.crd-manifests"
	_ "github.com/openshift/api/operator/v1/zz_generated.crd-manifests"
	_ "github.com/openshift/api/security/v1/zz_generated.crd-manifests"
)
