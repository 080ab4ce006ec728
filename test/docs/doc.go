// Package docs checks the documentation against the tree: links and anchors, the commands,
// flags and tests that pages name, and that each reason and Event of the code is described.
// It needs no cluster. With the flag -commands, as `make verify` runs it, it also runs the commands
// of README.md and of the quickstarts, on API servers of its own.
package docs
