// Package credentials creates and renews the credentials of reporters that no kubelet
// issues: tokens and client certificates in Secrets.
//
// It guarantees
//   - to write only when a renewal is due;
//   - that a write which fails leaves the previous credential in place;
//   - to report a renewal that is blocked while the previous credential still works;
//   - to read and write Secrets by name only, so that a role can name them, and never
//     to list or watch them;
//   - never to log a token or a key, nor to put one into an error or a message.
//
// It does not revoke: an issued credential works until it expires. A minted token ends
// earlier only with its ServiceAccount, a certificate with the cluster's client CA.
//
// While a KMS plugin is unhealthy, an API server may be unable to read the Secret.
// Nothing is renewed then: a credential is renewed at half its life to leave time for it.
package credentials
