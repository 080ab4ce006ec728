// Package docs checks the documentation against the tree: links and anchors, the commands,
// flags and tests that pages name, and that each reason and Event of the code is described.
// It needs no cluster.
package docs
