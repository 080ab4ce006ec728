// Package source reads operator resources: from a cluster, with the rights of the user,
// or from files. It does not evaluate them.
package source
