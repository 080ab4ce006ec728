// Package integration holds the tests of kms-health-reporter as a process beside
// a real kube-apiserver with etcd, and real plugins. They carry the build tag
// integration; `make test` builds what they need and runs them.
package integration
