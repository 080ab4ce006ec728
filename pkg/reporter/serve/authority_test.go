package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{}
	a.key, a.cert, a.pem = certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}, nil)
	return a
}

func certificate(t *testing.T, template *x509.Certificate, by *authority) (*ecdsa.PrivateKey, *x509.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotAfter = time.Now().Add(time.Hour)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair writes a certificate named name and its key.
func (a *authority) pair(t *testing.T, dir, name string) {
	t.Helper()
	key, _, certPEM := certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}}, a)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	for file, data := range map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// client is the TLS configuration of a client with a certificate signed by by, or
// without one. It presents the certificate whatever CAs the server names.
func client(t *testing.T, server, by *authority) *tls.Config {
	t.Helper()
	config := &tls.Config{RootCAs: server.pool()}
	if by != nil {
		dir := t.TempDir()
		by.pair(t, dir, "client")
		pair, err := tls.LoadX509KeyPair(dir+"/tls.crt", dir+"/tls.key")
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config
}

// servingTLS is TLS with the files of a folder, with client CAs if there is a file.
func servingTLS(t *testing.T, dir, clientCAFile string) *v1alpha1.Serving {
	t.Helper()
	return &v1alpha1.Serving{Address: freeAddress(t), TLS: &v1alpha1.ServingTLS{
		CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", ClientCAFile: clientCAFile, MinVersion: v1alpha1.TLS12,
	}}
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
