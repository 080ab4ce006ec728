package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const lifetime = 7 * 24 * time.Hour

// pki is the cluster's authority, which signs for servers and clients alike; the one
// that will sign for kube-apiserver after a rotation, which the cluster's own programs
// trust from the start; and the key that signs ServiceAccounts' tokens.
type pki struct {
	authority
	next     authority
	tokenKey []byte
}

type authority struct {
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	caPEM  []byte
	keyPEM []byte
}

func newPKI() (*pki, error) {
	p := new(pki)
	var err error
	if p.authority, err = newAuthority("kms-health-e2e"); err != nil {
		return nil, err
	}
	if p.next, err = newAuthority("kms-health-e2e-next"); err != nil {
		return nil, err
	}
	tokens, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	p.tokenKey = encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(tokens))
	return p, nil
}

func newAuthority(name string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template, err := template(name)
	if err != nil {
		return authority{}, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	a := authority{key: key, caPEM: encode("CERTIFICATE", der)}
	if a.ca, err = x509.ParseCertificate(der); err != nil {
		return authority{}, err
	}
	a.keyPEM, err = encodeKey(key)
	return a, err
}

// both is what the cluster's own programs trust.
func (p *pki) both() []byte { return slices.Concat(p.caPEM, p.next.caPEM) }

func template(name string, groups ...string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}, err
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return encode("EC PRIVATE KEY", der), err
}

func (a *authority) sign(t *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.ca, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of %s: %w", t.Subject.CommonName, err)
	}
	key, err = encodeKey(private)
	return encode("CERTIFICATE", der), key, err
}

// client signs a certificate for a user.
func (a *authority) client(user string, groups ...string) (cert, key []byte, err error) {
	t, err := template(user, groups...)
	if err != nil {
		return nil, nil, err
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(t)
}

// serving signs a certificate for names and IP addresses.
func (a *authority) serving(names ...string) (cert, key []byte, err error) {
	t, err := template(names[0])
	if err != nil {
		return nil, nil, err
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	return a.sign(t)
}

// kubeconfig is a user's, with all that it needs inside.
func (p *pki) kubeconfig(server, user string, groups ...string) ([]byte, error) {
	cert, key, err := p.client(user, groups...)
	if err != nil {
		return nil, err
	}
	const name = "e2e"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: p.both(), TLSServerName: "localhost"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

func (p *pki) restConfig(server, user string, groups ...string) (*rest.Config, error) {
	raw, err := p.kubeconfig(server, user, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(raw)
}

// tlsConfig is a client's that trusts the authority.
func (p *pki) tlsConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca)
	pool.AddCert(p.next.ca)
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func (n *Node) servingNames() []string {
	return []string{"localhost", "127.0.0.1", serviceIP, n.IP.String(), "kubernetes", "kubernetes.default.svc"}
}

// nodeFiles are the files below a node's pkiDir.
func (p *pki) nodeFiles(n *Node) (map[string][]byte, error) {
	const localhost = "https://localhost:6443"
	files := map[string][]byte{"ca.crt": p.caPEM, "root-ca.crt": p.caPEM, "ca.key": p.keyPEM, "sa.key": p.tokenKey}
	pair := func(name string, cert, key []byte, err error) error {
		files[name+".crt"], files[name+".key"] = cert, key
		return err
	}
	cert, key, err := p.serving(n.servingNames()...)
	if err := pair("serving", cert, key, err); err != nil {
		return nil, err
	}
	cert, key, err = p.client("kube-apiserver", "system:masters")
	if err := pair("kubelet-client", cert, key, err); err != nil {
		return nil, err
	}
	cert, key, err = p.client("front-proxy")
	if err := pair("front-proxy", cert, key, err); err != nil {
		return nil, err
	}
	for name, user := range map[string][]string{
		"kubelet":                 {"system:node:" + n.Name, "system:nodes"},
		"kube-proxy":              {"system:kube-proxy"},
		"kube-controller-manager": {"system:kube-controller-manager"},
		"kube-scheduler":          {"system:kube-scheduler"},
		"admin":                   {"admin", "system:masters"},
	} {
		raw, err := p.kubeconfig(localhost, user[0], user[1:]...)
		if err != nil {
			return nil, err
		}
		files[name+".kubeconfig"] = raw
	}
	return files, nil
}

// Serving signs a serving certificate by the cluster's CA.
func (c *Cluster) Serving(names ...string) (cert, key []byte, err error) {
	return c.pki.serving(names...)
}

// Client signs a client certificate for a user.
func (c *Cluster) Client(user string, groups ...string) (cert, key []byte, err error) {
	return c.pki.client(user, groups...)
}

// CAs are kube-apiserver's, PEM: the one that signs first, and the next.
func (c *Cluster) CAs() (first, next []byte) { return c.pki.caPEM, c.pki.next.caPEM }
