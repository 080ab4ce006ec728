// Package rollup combines the reports of all nodes on their KMS plugins into one verdict.
//
// Its input is the content of an operator resource: the reports on it, in either form and
// of any writer, and its current conditions. Evaluate returns the conditions for the
// reports and the expected nodes, and when they change without another write. Leftovers
// returns the reports that will not be written again.
//
// The package is pure: it uses no clock and no API server. The caller passes in the state
// of the nodes' pods.
package rollup
