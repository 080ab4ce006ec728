// Package identity tests the identities of the reporters and their rights: bindata/identity.yaml
// and the policies of manifests/common on a real kube-apiserver, and the tokens that
// pkg/operator/reportercontroller creates, while the KMS plugin is healthy and during its outage.
// `go test -v` prints the tables.
package identity
