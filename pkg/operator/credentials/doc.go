// Package credentials creates and renews the tokens of reporters in pods of another
// ServiceAccount: by TokenRequest, in a Secret that the pods mount.
//
// It guarantees
//   - to write only when a renewal is due;
//   - that a write which fails leaves the previous token in place;
//   - to report a renewal that is blocked while the previous token still works;
//   - to read and write Secrets by name only, so that a role can name them, and never
//     to list or watch them;
//   - never to log a token, nor to put one into an error or a message.
//
// It does not revoke: a token works until it expires, or its ServiceAccount is deleted.
//
// While a KMS plugin is unhealthy, an API server may be unable to read the Secret.
// Nothing is renewed then: a token is renewed at half its life to leave time for it.
package credentials
