// Package source reads operator resources: from a cluster, with the rights of
// whoever asks, or from files that were taken of one. It judges nothing.
package source
