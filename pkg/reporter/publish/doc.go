// Package publish writes what was observed to the status of an operator
// resource, by Server-Side Apply.
//
// A Publisher holds the freshest observation and nothing older: a write that
// fails is dropped, and what is freshest then is tried again soon, so that an
// API server that comes back has the current report at once. Where several API
// servers are configured, each write tries them in turn, beginning with the one
// that worked last. It sends one kind of request only, a PATCH of one status; it
// never reads, and never creates the resource. Nothing that goes wrong with a
// write ends it, and no write, however slow, delays the caller. No error, log
// line, metric or Status of it shows a user or password of a URL.
package publish
