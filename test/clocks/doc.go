// Package clocks runs real kube-apiservers, reporters and the operator, some with wrong clocks. Those are linked with
// another package time (test/tools/clocks.sh): `make test-clocks`.
package clocks
