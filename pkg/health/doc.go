// Package health is the contract between those who report on KMS plugins and
// those who read the reports: what a report is called, how it is encoded, for
// how long it may be believed, and when nodes agree on a key.
//
// A reporter beside each API server pod writes one condition, named
// KMSHealthReporter_<node>, to the API server's operator resource. Its status
// is always "True" and its reason always "AsExpected"; the facts are in its
// message, a minified JSON array with an Entry per plugin.
//
// The package is pure: it reads no clock, no file and no network, and imports
// nothing of this project. Anyone may import it: a rotation controller, a
// must-gather script, an operator of another make.
package health
