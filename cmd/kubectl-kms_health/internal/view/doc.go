// Package view judges what was read of a cluster: the reports by pkg/rollup, and the operator's
// conditions as it last wrote them. It is pure, from a Snapshot to a Status, and forms no opinion
// that the roll-up has not.
package view
