package serve

import (
	"crypto/tls"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
)

func authority(t *testing.T, name string) *controlplane.CA {
	t.Helper()
	ca, err := controlplane.NewCA(name)
	must.Succeed(t, err)
	return ca
}

// serveAs writes a serving certificate for a name, and its key.
func serveAs(t *testing.T, ca *controlplane.CA, dir, name string) {
	t.Helper()
	pair, err := ca.Serving(name, "127.0.0.1")
	must.Succeed(t, err)
	disk.Write(t, dir+"/tls.crt", pair.Cert)
	disk.Write(t, dir+"/tls.key", pair.Key)
}

// client returns a client's TLS configuration with a certificate that the CA by signs, or without one if by is nil. It
// presents the certificate whatever CAs the server names.
func client(t *testing.T, server, by *controlplane.CA) *tls.Config {
	t.Helper()
	config := &tls.Config{RootCAs: server.Pool()}
	if by != nil {
		files, err := by.Client(time.Hour, "client")
		must.Succeed(t, err)
		pair, err := tls.X509KeyPair(files.Cert, files.Key)
		must.Succeed(t, err)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config
}

// servingTLS returns a configuration with the files of a folder, and client CAs if clientCAFile is set.
func servingTLS(t *testing.T, dir, clientCAFile string) *v1alpha1.Serving {
	t.Helper()
	return &v1alpha1.Serving{Address: controlplane.FreeAddress(t), TLS: &v1alpha1.ServingTLS{
		CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", ClientCAFile: clientCAFile, MinVersion: v1alpha1.TLS12,
	}}
}

func TestTLSSettingsAndFilesApplyToTheNextConnection(t *testing.T) {
	ca, dir := authority(t, "ca"), t.TempDir()
	config := servingTLS(t, dir, "")
	s := newServer()
	stop := run(t, s, config)
	url := "https://" + config.Address + "/metrics"
	at12 := &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12}
	apply := func(version v1alpha1.TLSVersion, suites ...string) {
		next, settings := *config, *config.TLS
		settings.MinVersion, settings.CipherSuites = version, suites
		next.TLS = &settings
		stop()
		await(t, "the former one has ended", func() bool { return !isOpen(config.Address) })
		stop = run(t, s, &next)
		awaitOpen(t, config.Address)
	}

	awaitOpen(t, config.Address)
	if _, err := get(t, url, at12); err == nil {
		t.Fatal("served without a certificate")
	}
	for _, name := range []string{"first", "second"} {
		serveAs(t, ca, dir, name)
		r, err := get(t, url, at12)
		if err != nil || r.StatusCode != http.StatusOK || r.TLS.PeerCertificates[0].Subject.CommonName != name {
			t.Fatal(name, r, err)
		}
	}
	apply(v1alpha1.TLS13)
	if _, err := get(t, url, at12); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2 where 1.3 is the least: %v", err)
	}
	if r, err := get(t, url, &tls.Config{RootCAs: ca.Pool()}); err != nil || r.TLS.Version != tls.VersionTLS13 {
		t.Error(r, err)
	}
	const suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	apply(v1alpha1.TLS12, suite)
	if r, err := get(t, url, at12); err != nil || tls.CipherSuiteName(r.TLS.CipherSuite) != suite {
		t.Error(r, err)
	}
}

func TestClientsWithoutATrustedCertificateAreNotAccepted(t *testing.T) {
	serving, clients, strangers, dir := authority(t, "serving"), authority(t, "clients"), authority(t, "strangers"), t.TempDir()
	serveAs(t, serving, dir, "server")
	file := dir + "/ca.crt"
	config := servingTLS(t, dir, file)
	run(t, newServer(), config)
	awaitOpen(t, config.Address)
	for _, tt := range []struct {
		what     string
		make     func()
		accepted bool // a client with a certificate
	}{
		{"no file", func() {}, false},
		{"good", func() { disk.Write(t, file, clients.PEM()) }, true},
		{"empty", func() { disk.Write(t, file, nil) }, false},
		{"no certificate in it", func() { disk.Write(t, file, []byte("none")) }, false},
		{"good again", func() { disk.Write(t, file, clients.PEM()) }, true},
		{"a directory", func() { _, _ = os.Remove(file), os.Mkdir(file, 0o755) }, false},
	} {
		tt.make()
		for path, by := range map[string]*controlplane.CA{"/healthz": nil, "/metrics": strangers, "/kms-providers": clients} {
			r, err := get(t, "https://"+config.Address+path, client(t, serving, by))
			if accepted := tt.accepted && by == clients; (err == nil) != accepted {
				t.Errorf("%s: %s: accepted %t, want %t: %v", tt.what, path, err == nil, accepted, r)
			}
		}
	}
}
