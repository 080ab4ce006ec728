// Package probe asks a KMS v2 plugin for its health, and judges its answer.
//
// A Plugin holds one gRPC connection over a unix socket. Probe calls Status, and
// RoundTrip encrypts and decrypts a sample. Both are bounded, and return what they
// found, never an error, since a failure to get an answer is a finding too. Nothing is
// retried here; the next probe is the retry, and it sees a plugin that came back.
//
// The verdict on a Status answer is kube-apiserver's, rule for rule (see judge). What
// kube-apiserver does beyond judging one answer (it encrypts when the key id changes,
// and caches its verdict for some seconds) is not done here.
//
// A plugin may answer anything, at any time, or stop reading: none of it costs more
// than the probe. Answers have gRPC's bounds, writes a deadline, and closing does not
// wait for the other side.
package probe
