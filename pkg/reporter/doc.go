// Package reporter joins the reporter's parts: a file is watched, the plugins
// that it names are probed, and what they answered is published, written out and
// served.
//
// One goroutine owns all state and never waits for anything outside: reading the
// file, probing, writing and serving each go on beside it. So a plugin that
// hangs, an API server that is away or a full disk delays nothing but itself.
//
// The last good file stays in force: a file that is broken, or gone, is a
// message to the admin, and no instruction. Only an empty list of plugins means
// that there is nothing to do.
package reporter
