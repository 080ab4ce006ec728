package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certLifetime is longer than any test or demo, and short enough that a forgotten file soon becomes useless.
const certLifetime = 7 * 24 * time.Hour

// CA is a certificate authority of one test run. Its key is only in memory, unless a caller writes KeyPEM to a file.
type CA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// KeyPair is a certificate and its private key, both PEM.
type KeyPair struct {
	Cert []byte
	Key  []byte
}

// NewCA creates a self-signed authority that is valid for certLifetime. The operator reports that it expires soon.
func NewCA(name string) (*CA, error) { return NewCAFor(name, certLifetime) }

// NewCAFor is NewCA with another lifetime.
func NewCAFor(name string, lifetime time.Duration) (*CA, error) {
	template := certTemplate(pkix.Name{CommonName: name}, lifetime)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	return (&CA{certificate: template}).issue(template)
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte {
	pem, _ := cert.EncodeCertificates(ca.certificate) // cannot fail
	return pem
}

// KeyPEM returns the authority's key, for a program that signs with it.
func (ca *CA) KeyPEM() ([]byte, error) { return keyutil.MarshalPrivateKeyToPEM(ca.key) }

// Pool returns a pool that trusts this authority only.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	return pool
}

// Serving signs a server certificate for these names and IP addresses.
func (ca *CA) Serving(names ...string) (*KeyPair, error) {
	template := certTemplate(pkix.Name{CommonName: names[0]}, certLifetime)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return ca.pair(template)
}

// Client signs a client certificate: to Kubernetes the common name is the user and the organizations are the groups.
func (ca *CA) Client(lifetime time.Duration, commonName string, organizations ...string) (*KeyPair, error) {
	template := certTemplate(pkix.Name{CommonName: commonName, Organization: organizations}, lifetime)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return ca.pair(template)
}

func (ca *CA) pair(template *x509.Certificate) (*KeyPair, error) {
	issued, err := ca.issue(template)
	if err != nil {
		return nil, err
	}
	key, err := issued.KeyPEM()
	return &KeyPair{Cert: issued.PEM(), Key: key}, err
}

// issue creates a key and signs its certificate with ca's key. If ca has no key, the certificate is self-signed.
func (ca *CA) issue(template *x509.Certificate) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signer := ca.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	certificate, err := x509.ParseCertificate(der)
	return &CA{certificate: certificate, key: key}, err
}

func certTemplate(subject pkix.Name, lifetime time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject: subject,
		// A day earlier, since tests set clocks wrong.
		NotBefore: now.Add(-24 * time.Hour),
		NotAfter:  now.Add(lifetime),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}
