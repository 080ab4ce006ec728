// Package identity holds the tests of who the reporters are, and of what they may
// do: bindata/identity.yaml and the policy of manifests/common on a real kube-apiserver, and
// the tokens that pkg/operator/reportercontroller makes, while the KMS plugin is
// healthy and during its outage. Its tables are printed by `go test -v`.
package identity
