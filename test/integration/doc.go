// Package integration tests kms-health-reporter as a process, with a real kube-apiserver, etcd and plugins. The tests
// have the build tag integration. `make test` builds the programs and runs the tests.
package integration
