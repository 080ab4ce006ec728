// Package controlplane runs a real etcd, a real kube-apiserver and, where it is requested, a real
// kube-controller-manager as child processes: for integration tests, the parity check, benchmarks and the demo.
//
// It promises
//   - a server with a configuration as in production, where it matters to the tests: RBAC and the
//     Node authorizer, the default admission plugins, bound ServiceAccount
//     tokens, client certificates, optional encryption at rest;
//   - full control of the process: stop, kill, freeze and start again on the
//     same port, with the same data, certificates and signing keys;
//   - evidence without requests to the server under test: the audit log and the bytes
//     in etcd;
//   - that nothing runs longer than its test: every wait is bounded and every child
//     ends with this process.
//
// Without StartControllerManager there are no default ServiceAccounts, no legacy
// token Secrets, no garbage collection, and a deleted namespace stays Terminating.
// There is never a scheduler or a kubelet, so no pods run. Package nodes simulates both.
//
// The environment variable KUBEBUILDER_ASSETS names the folder of the binaries.
// `make test` sets it. Without it every start fails; nothing is skipped.
package controlplane
