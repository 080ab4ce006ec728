// Package manifests tests manifests/ with their schemas and with a real kube-apiserver: it accepts
// all manifests, the operator has only the rights that it needs, and admission policies limit the
// rights that RBAC cannot limit.
package manifests
