// Package encryption reads which KMS plugins an API server's EncryptionConfiguration
// names, so that a reporter can probe them. It is pure.
//
// The file also holds local encryption keys. They are never decoded into a
// value, so nothing that is returned can hold them; and no error quotes the
// file, not even the place where it cannot be read.
//
// Only what is needed is read, and the rest is tolerated: it is kube-apiserver's
// business to reject a file that it cannot use. A provider that cannot be probed
// does not hide the others; it is returned as Ignored, with the reason.
package encryption
