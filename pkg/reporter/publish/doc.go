// Package publish writes observations to the status of an operator resource, by
// Server-Side Apply.
//
// A Publisher keeps only the latest observation: a failed write is dropped, and the
// observation that is then the latest is written soon after, so that a recovered API
// server gets the current report at once. If several API servers are configured, each
// write tries them in turn, those that failed lately last. A Publisher sends
// one kind of request only, a PATCH of one status; it never reads, and never creates
// the resource. No failed write ends it, and no slow write delays the caller. No error,
// log line or metric of it shows a user or password of a URL.
package publish
