// Package clocks runs real kube-apiservers, reporters and the operator, of which some have wrong clocks. They are built
// with another package time (test/tools/clocks.sh): `make test-clocks`.
package clocks
