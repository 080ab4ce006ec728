// Package reporter joins the reporter's parts: it watches a file, probes the plugins
// that the file names, and publishes, prints and serves the results.
//
// One goroutine owns all state and never blocks on I/O: reading the file, probing,
// writing and serving each run in other goroutines. So a plugin that hangs, an API
// server that is down or a full disk delays nothing else.
//
// The last valid file stays active: an invalid or deleted file is logged, and changes
// nothing. Only an empty list of plugins turns probing off.
package reporter
