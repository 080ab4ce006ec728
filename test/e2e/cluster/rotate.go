package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
)

// The steps of a rotation of the CA that kube-apiserver's certificate is signed by, in
// their order. What pods trust is the ConfigMap kube-root-ca.crt of their namespace,
// which kube-controller-manager writes.
const (
	TrustBoth = iota
	ServeByNext
	TrustNext
)

// RotateCA makes one step.
func (c *Cluster) RotateCA(step int) error {
	first := c.Nodes()[0]
	switch step {
	case ServeByNext:
		for _, n := range c.Nodes() {
			pair, err := c.pki.next.Serving(n.servingNames()...)
			if err != nil {
				return err
			}
			if err := n.WriteFile(filepath.Join(pkiDir, "serving.key"), pair.Key, 0o600); err != nil {
				return err
			}
			if err := n.WriteFile(filepath.Join(pkiDir, "serving.crt"), pair.Cert, 0o600); err != nil {
				return err
			}
		}
		return nil
	case TrustBoth:
		return first.trust(c.pki.both())
	default:
		return first.trust(c.pki.next.PEM())
	}
}

// trust distributes a bundle to all pods, by a new kube-controller-manager.
func (n *Node) trust(bundle []byte) error {
	if err := n.WriteFile(filepath.Join(pkiDir, "root-ca.crt"), bundle, 0o600); err != nil {
		return err
	}
	return n.restart("kube-controller-manager", func(context.Context) error { return nil }) // it is kept running
}

// ServedByNext has nothing against a kube-apiserver whose certificate is of the next CA.
func (c *Cluster) ServedByNext(ctx context.Context, n *Node) error {
	conn, err := n.Dial(ctx, "tcp", "127.0.0.1:6443")
	if err != nil {
		return err
	}
	defer conn.Close()
	return tls.Client(conn, &tls.Config{RootCAs: c.pki.next.Pool(), ServerName: "localhost"}).HandshakeContext(ctx)
}

// CAs are the certificates of a kubeconfig's authority, or of a PEM file, each in PEM.
func CAs(content []byte) ([]string, error) {
	if !bytes.HasPrefix(content, []byte("-----BEGIN")) {
		config, err := clientcmd.Load(content)
		if err != nil {
			return nil, err
		}
		content = nil
		for _, c := range config.Clusters {
			content = append(content, c.CertificateAuthorityData...)
		}
	}
	var found []string
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			return found, nil
		}
		found = append(found, string(pem.EncodeToMemory(block)))
	}
}
