package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
)

// The steps of a rotation of kube-apiserver's CA, in their order. Pods trust the ConfigMap kube-root-ca.crt of their
// namespace, which kube-controller-manager writes.
const (
	TrustBoth = iota
	ServeByNext
	TrustNext
)

// RotateCA does one step of the rotation.
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

// trust distributes a bundle to all pods, by a restart of kube-controller-manager.
func (n *Node) trust(bundle []byte) error {
	if err := n.WriteFile(filepath.Join(pkiDir, "root-ca.crt"), bundle, 0o600); err != nil {
		return err
	}
	return n.restart("kube-controller-manager", func(context.Context) error { return nil }) // keep starts it again
}

// ServedByNext returns an error unless the next CA signed the certificate that a node's kube-apiserver serves.
func (c *Cluster) ServedByNext(ctx context.Context, n *Node) error {
	conn, err := n.Dial(ctx, "tcp", "127.0.0.1:6443")
	if err != nil {
		return err
	}
	defer conn.Close()
	return tls.Client(conn, &tls.Config{RootCAs: c.pki.next.Pool(), ServerName: "localhost"}).HandshakeContext(ctx)
}

// CAs returns the CA certificates of a kubeconfig, or of a PEM file, each in PEM.
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
