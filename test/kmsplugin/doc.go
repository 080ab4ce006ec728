// Package kmsplugin is a KMS v2 plugin for development and tests, which can be
// made unhealthy while it runs.
//
// It promises:
//
//   - to be a real plugin: kube-apiserver accepts it as a `kms` provider with
//     `apiVersion: v2`. It encrypts with AES-256-GCM, its keys survive a
//     restart, and after a rotation the old keys still decrypt;
//   - to be strict where a client could be careless: Decrypt demands the
//     key_id and the annotations that Encrypt answered with;
//   - that faults are states, not scripts. A fault holds from the return of
//     SetFault until it is cleared, for every caller alike, since
//     kube-apiserver calls too, at unknown times (only changing-version
//     depends on calls, and counts them per connection);
//   - to count the calls it receives, before any fault holds or refuses them;
//   - to end its goroutines and to remove its socket on Close, within 2 s.
//
// It protects nothing: the keys are on disk in plain text, every user that may
// open the control socket may do all, and old keys are kept for ever. Faults
// are not kept: a restarted plugin has only those of its Options and of FaultsFile. The gRPC
// health service answers Check, not Watch. It is not for production.
//
// The table that [Faults] returns is the only list of faults: the help text,
// the control socket and the tests read it.
package kmsplugin
