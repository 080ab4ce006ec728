package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const lifetime = 7 * 24 * time.Hour

// caLifetime is as long as in production: the operator reports a CA that ends within 30 days.
const caLifetime = 365 * 24 * time.Hour

// pki has the cluster's CA, which signs for servers and clients, and the key for ServiceAccount tokens. next is the CA
// that signs for kube-apiserver after a rotation. The cluster's programs trust next from the start.
type pki struct {
	ca, next *controlplane.CA
	tokenKey []byte
}

func newPKI() (*pki, error) {
	p := new(pki)
	var err error
	if p.ca, err = controlplane.NewCAFor("kms-health-e2e", caLifetime); err != nil {
		return nil, err
	}
	if p.next, err = controlplane.NewCAFor("kms-health-e2e-next", caLifetime); err != nil {
		return nil, err
	}
	p.tokenKey, err = keyutil.MakeEllipticPrivateKeyPEM()
	return p, err
}

// both returns the CAs that the cluster's programs trust.
func (p *pki) both() []byte { return slices.Concat(p.ca.PEM(), p.next.PEM()) }

// kubeconfig returns a user's kubeconfig without references to files.
func (p *pki) kubeconfig(server, user string, groups ...string) ([]byte, error) {
	pair, err := p.ca.Client(lifetime, user, groups...)
	if err != nil {
		return nil, err
	}
	const name = "e2e"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: p.both(),
			TLSServerName: "localhost"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// tlsConfig returns a client's configuration that trusts both CAs.
func (p *pki) tlsConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.both())
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func (n *Node) servingNames() []string {
	return []string{"localhost", "127.0.0.1", serviceIP, balancerIP, n.IP.String(), "kubernetes", "kubernetes.default.svc"}
}

// nodeFiles returns the files below a node's pkiDir.
func (p *pki) nodeFiles(n *Node) (map[string][]byte, error) {
	const localhost = "https://localhost:6443"
	// With several nodes a kubelet does not depend on its own node's API server.
	nodes := localhost
	if n.cluster.options.Nodes > 1 && len(n.cluster.options.Ahead) == 0 {
		nodes = InternalServer
	}
	caKey, err := p.ca.KeyPEM()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"ca.crt": p.ca.PEM(), "root-ca.crt": p.ca.PEM(), "ca.key": caKey, "sa.key": p.tokenKey}
	for name, sign := range map[string]func() (*controlplane.KeyPair, error){
		"serving": func() (*controlplane.KeyPair, error) { return p.ca.Serving(n.servingNames()...) },
		"kubelet-client": func() (*controlplane.KeyPair, error) {
			return p.ca.Client(lifetime, "kube-apiserver", "system:masters")
		},
		"front-proxy": func() (*controlplane.KeyPair, error) { return p.ca.Client(lifetime, "front-proxy") },
	} {
		pair, err := sign()
		if err != nil {
			return nil, err
		}
		files[name+".crt"], files[name+".key"] = pair.Cert, pair.Key
	}
	for name, user := range map[string][]string{
		"kubelet":                 {"system:node:" + n.Name, "system:nodes"},
		"kube-proxy":              {"system:kube-proxy"},
		"kube-controller-manager": {"system:kube-controller-manager"},
		"kube-scheduler":          {"system:kube-scheduler"},
		"admin":                   {"admin", "system:masters"},
	} {
		server := localhost
		if name == "kubelet" || name == "kube-proxy" {
			server = nodes
		}
		raw, err := p.kubeconfig(server, user[0], user[1:]...)
		if err != nil {
			return nil, err
		}
		files[name+".kubeconfig"] = raw
	}
	return files, nil
}

// Serving signs a serving certificate by the cluster's CA.
func (c *Cluster) Serving(names ...string) (*controlplane.KeyPair, error) {
	return c.pki.ca.Serving(names...)
}

// Client signs a client certificate for a user.
func (c *Cluster) Client(user string, groups ...string) (*controlplane.KeyPair, error) {
	return c.pki.ca.Client(lifetime, user, groups...)
}

// CAs returns kube-apiserver's CAs in PEM: the first one, and the one after a rotation.
func (c *Cluster) CAs() (first, next []byte) { return c.pki.ca.PEM(), c.pki.next.PEM() }
