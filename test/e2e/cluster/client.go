package cluster

// Client signs a client certificate for a user.
func (c *Cluster) Client(user string, groups ...string) (cert, key []byte, err error) {
	return c.pki.client(user, groups...)
}

// CAs are kube-apiserver's, PEM: the one that signs first, and the next.
func (c *Cluster) CAs() (first, next []byte) { return c.pki.caPEM, c.pki.next.caPEM }
