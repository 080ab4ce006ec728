package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLifetime is longer than any test or demo, and short enough that a
// forgotten file is of no use to anyone.
const certLifetime = 7 * 24 * time.Hour

// CA is a certificate authority of one test run. Its key exists in memory only,
// but for the client CA's where a controller-manager runs, which signs by it.
type CA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// KeyPair is a certificate and its private key, both PEM.
type KeyPair struct {
	Cert []byte
	Key  []byte
}

// NewCA makes a self-signed authority for some days, which the operator reports as one that ends soon.
func NewCA(name string) (*CA, error) { return NewCAFor(name, certLifetime) }

// NewCAFor makes one that lives as long.
func NewCAFor(name string, lifetime time.Duration) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of CA %s: %w", name, err)
	}
	template, err := certTemplate(pkix.Name{CommonName: name}, lifetime)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign CA %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse CA %s: %w", name, err)
	}
	return &CA{certificate: certificate, key: key, pem: encodePEM("CERTIFICATE", der)}, nil
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte { return append([]byte(nil), ca.pem...) }

// KeyPEM returns the authority's key, for a program that signs by it.
func (ca *CA) KeyPEM() ([]byte, error) { return encodeKey(ca.key) }

// Pool returns a pool that trusts this authority only.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	return pool
}

// Serving signs a server certificate for these names and IP addresses.
func (ca *CA) Serving(names ...string) (*KeyPair, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("a serving certificate needs a name")
	}
	template, err := certTemplate(pkix.Name{CommonName: names[0]}, certLifetime)
	if err != nil {
		return nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return ca.sign(template)
}

// Client signs a client certificate: to Kubernetes the common name is the user
// and the organizations are the groups.
func (ca *CA) Client(lifetime time.Duration, commonName string, organizations ...string) (*KeyPair, error) {
	template, err := certTemplate(pkix.Name{CommonName: commonName, Organization: organizations}, lifetime)
	if err != nil {
		return nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return ca.sign(template)
}

func (ca *CA) sign(template *x509.Certificate) (*KeyPair, error) {
	name := template.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &KeyPair{Cert: encodePEM("CERTIFICATE", der), Key: keyPEM}, nil
}

func certTemplate(subject pkix.Name, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		// Certificates count whole seconds; an hour forgives any clock.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(lifetime),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return encodePEM("EC PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeFile replaces a file whole, so that a reader which watches it (the API
// server its certificate, the reporter its token) never reads a partial file.
func writeFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // already renamed on success
	if _, err := f.Write(content); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
