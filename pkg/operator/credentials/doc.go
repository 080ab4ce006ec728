// Package credentials makes the credentials of reporters that no kubelet makes:
// tokens and client certificates in Secrets, and keeps them fresh.
//
// It promises
//   - to write only when something is due, and never without need;
//   - that a write which fails leaves the credential before it in force;
//   - to read and write Secrets by their names alone, so that a role may name
//     them, and never to list or to watch them;
//   - never to log, and never to put a token or a key into an error or a message.
//
// It will not revoke: what was handed out works until it ends. A minted token ends
// early only with its ServiceAccount, a certificate with the cluster's client CA.
//
// With an ill KMS plugin an API server may be unable to read the Secret. Nothing
// is renewed then, which half a credential's life is there to bear.
package credentials
