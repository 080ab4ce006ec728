// Package rollup makes one verdict of what every node says of its KMS plugins.
//
// Read takes an operator resource apart: the reports on it, in either form and of
// any make, and the conditions that stand there. Evaluate is the verdict: what
// the reports and the expected nodes come to, and when that changes though
// nobody writes. Leftovers are the reports that nobody will write again.
//
// All of it is pure: no clock, no API server. What a node's pod tells is for the
// caller to find out.
package rollup
