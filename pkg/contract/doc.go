// Package contract is the contract between writers and readers of reports on KMS
// plugins: how a report is named, how it is encoded, and for how long it is valid.
//
// A reporter beside each API server pod writes one condition, named
// KMSHealthReporter_<node>, to the API server's operator resource. Its status
// is always "True" and its reason always "AsExpected"; the facts are in its
// message, a minified JSON array with an Entry per plugin.
//
// The package is pure, and imports nothing of this project. Anyone may import it: a rotation
// controller, a must-gather script, a third-party operator.
package contract
