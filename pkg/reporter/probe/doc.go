// Package probe checks the health of a KMS v2 plugin.
//
// A Plugin holds one gRPC connection over a unix socket. Probe calls Status, and
// RoundTrip encrypts and decrypts a sample. Both take bounded time and return a result,
// never an error: a failure to get an answer is a result too. Nothing is retried here;
// the next probe is the retry, and detects that a plugin recovered.
//
// The verdict on a Status answer follows kube-apiserver's rules (see judge). What
// kube-apiserver does beyond checking one answer (it encrypts when the key id changes,
// and caches its verdict for some seconds) is not done here.
//
// A plugin may send any answer at any time, or stop reading: only its own probe is
// affected. Answers are bounded in size, writes have a deadline, and closing does not
// wait for the plugin.
package probe
