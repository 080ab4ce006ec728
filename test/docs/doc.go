// Package docs checks the documentation against the tree: links and anchors, the commands, flags and tests that pages
// name, and that the reference has each result of the reporter. It needs no cluster. With the flag -commands, as in
// `make verify`, it also runs the commands of README.md and of the quickstarts on API servers that it starts.
package docs
