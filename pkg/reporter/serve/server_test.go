package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func run(t *testing.T, config *v1alpha1.Serving) *Server {
	t.Helper()
	s := New(func() View { return View{Configured: true} }, prometheus.NewRegistry())
	s.Apply(config)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(time.Millisecond) // nothing tells when a listener is there
	}
}

func (s *Server) await(t *testing.T) string {
	t.Helper()
	eventually(t, "the server listens", func() bool { return s.Address() != "" })
	return s.Address()
}

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

func get(t *testing.T, url string, config *tls.Config) (*http.Response, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get(url)
	if err == nil {
		_ = response.Body.Close()
	}
	return response, err
}

func TestPlainHTTPOnLoopback(t *testing.T) {
	s := run(t, &v1alpha1.Serving{Address: "127.0.0.1:0"})
	r, err := get(t, "http://"+s.await(t)+"/readyz", nil)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r, err)
	}
	s.Apply(nil)
	eventually(t, "the server is off", func() bool { return s.Address() == "" })
}

func TestTakenPortIsTriedAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := run(t, &v1alpha1.Serving{Address: taken.Addr().String()})
	eventually(t, "the failure is counted", func() bool { return testutil.ToFloat64(s.failing) == 1 })
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	s.await(t)
	if testutil.ToFloat64(s.failing) != 0 {
		t.Error("still counted as failing")
	}
}

func TestTLSSettingsAndFilesApplyToTheNextConnection(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	settings := func(version v1alpha1.TLSVersion, suites ...string) *v1alpha1.Serving {
		return &v1alpha1.Serving{Address: "127.0.0.1:0", TLS: &v1alpha1.ServingTLS{
			CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", MinVersion: version, CipherSuites: suites,
		}}
	}
	s := run(t, settings(v1alpha1.TLS12))
	url := "https://" + s.await(t) + "/metrics"
	at12 := &tls.Config{RootCAs: ca.pool(), MaxVersion: tls.VersionTLS12}

	if _, err := get(t, url, at12); err == nil {
		t.Fatal("served without a certificate")
	}
	ca.pair(t, dir, "first")
	r, err := get(t, url, at12)
	if err != nil || r.StatusCode != http.StatusOK || r.TLS.PeerCertificates[0].Subject.CommonName != "first" {
		t.Fatal(r, err)
	}
	ca.pair(t, dir, "second")
	if r, err = get(t, url, at12); err != nil || r.TLS.PeerCertificates[0].Subject.CommonName != "second" {
		t.Error(r, err)
	}

	address := s.Address()
	s.Apply(settings(v1alpha1.TLS13))
	if _, err := get(t, url, at12); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2 where 1.3 is the least: %v", err)
	}
	if r, err = get(t, url, &tls.Config{RootCAs: ca.pool()}); err != nil || r.TLS.Version != tls.VersionTLS13 {
		t.Error(r, err)
	}

	const suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	s.Apply(settings(v1alpha1.TLS12, suite))
	if r, err = get(t, url, at12); err != nil || tls.CipherSuiteName(r.TLS.CipherSuite) != suite {
		t.Error(r, err)
	}
	if s.Address() != address {
		t.Errorf("the address changed from %s to %s", address, s.Address())
	}
}

func TestClientsWithoutACertificateSeeOnlyThatItLives(t *testing.T) {
	serving, clients, strangers, dir := newAuthority(t, "serving"), newAuthority(t, "clients"), newAuthority(t, "strangers"), t.TempDir()
	serving.pair(t, dir, "server")
	if err := os.WriteFile(dir+"/ca.crt", clients.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	s := run(t, &v1alpha1.Serving{Address: "127.0.0.1:0", TLS: &v1alpha1.ServingTLS{
		CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", ClientCAFile: dir + "/ca.crt", MinVersion: v1alpha1.TLS12,
	}})
	base := "https://" + s.await(t)
	as := func(by *authority) *tls.Config {
		config := &tls.Config{RootCAs: serving.pool()}
		if by != nil {
			d := t.TempDir()
			by.pair(t, d, "client")
			pair, err := tls.LoadX509KeyPair(d+"/tls.crt", d+"/tls.key")
			if err != nil {
				t.Fatal(err)
			}
			// Offered whatever CAs the server names.
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return config
	}
	for path, want := range map[string]string{"/healthz": "200 200 refused", "/readyz": "200 200 refused", "/metrics": "401 200 refused", "/kms-providers": "401 200 refused"} {
		var got []string
		for _, by := range []*authority{nil, clients, strangers} {
			r, err := get(t, base+path, as(by))
			if err != nil {
				got = append(got, "refused")
				continue
			}
			got = append(got, fmt.Sprint(r.StatusCode))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s to nobody, a client, a stranger: %v, want %s", path, got, want)
		}
	}
}
