// Package probe asks a KMS v2 plugin how it is, and judges its answer.
//
// A Plugin holds one gRPC connection over a unix socket. Probe makes the
// configured checks, bounded by the plugin's own timeout, and returns a Result:
// never an error, since a failure to get an answer is a result too. It keeps no
// history and retries nothing; the next probe is the retry, and it sees a
// plugin that came back.
//
// The verdict on a Status answer is kube-apiserver's, rule for rule (see
// judge). What kube-apiserver does beyond judging one answer (it encrypts when
// the key id changes, and caches its verdict for some seconds) is not done here.
package probe
