// Package manifests holds the tests of manifests/, by their schemas and against a real
// kube-apiserver: that it takes them all, that the operator may do what it needs and nothing more,
// and that what RBAC cannot bound is bounded by the admission policies.
package manifests
