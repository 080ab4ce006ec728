package serve

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

func TestTLSSettingsAndFilesApplyToTheNextConnection(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	config := servingTLS(t, dir, "")
	s := run(t, config)
	url := "https://" + config.Address + "/metrics"
	at12 := &tls.Config{RootCAs: ca.pool(), MaxVersion: tls.VersionTLS12}
	apply := func(version v1alpha1.TLSVersion, suites ...string) {
		next, settings := *config, *config.TLS
		settings.MinVersion, settings.CipherSuites = version, suites
		next.TLS = &settings
		s.Apply(t.Context(), &next)
	}

	awaitOpen(t, config.Address)
	if _, err := get(t, url, at12); err == nil {
		t.Fatal("served without a certificate")
	}
	for _, name := range []string{"first", "second"} {
		ca.pair(t, dir, name)
		r, err := get(t, url, at12)
		if err != nil || r.StatusCode != http.StatusOK || r.TLS.PeerCertificates[0].Subject.CommonName != name {
			t.Fatal(name, r, err)
		}
	}
	apply(v1alpha1.TLS13)
	if _, err := get(t, url, at12); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2 where 1.3 is the least: %v", err)
	}
	if r, err := get(t, url, &tls.Config{RootCAs: ca.pool()}); err != nil || r.TLS.Version != tls.VersionTLS13 {
		t.Error(r, err)
	}
	const suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	apply(v1alpha1.TLS12, suite)
	if r, err := get(t, url, at12); err != nil || tls.CipherSuiteName(r.TLS.CipherSuite) != suite {
		t.Error(r, err)
	}
}

func TestClientsWithoutACertificateSeeOnlyLiveness(t *testing.T) {
	serving, clients, strangers, dir := newAuthority(t, "serving"), newAuthority(t, "clients"), newAuthority(t, "strangers"), t.TempDir()
	serving.pair(t, dir, "server")
	writeFile(t, dir+"/ca.crt", clients.pem)
	config := servingTLS(t, dir, dir+"/ca.crt")
	run(t, config)
	awaitOpen(t, config.Address)
	for path, want := range map[string]string{"/healthz": "200 200 refused", "/readyz": "200 200 refused", "/metrics": "401 200 refused", "/kms-providers": "401 200 refused"} {
		var got []string
		for _, by := range []*authority{nil, clients, strangers} {
			r, err := get(t, "https://"+config.Address+path, client(t, serving, by))
			if err != nil {
				got = append(got, "refused")
				continue
			}
			got = append(got, fmt.Sprint(r.StatusCode))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s to no client certificate, a trusted one, an unknown one: %v, want %s", path, got, want)
		}
	}
}

func TestWithoutUsableClientCAsNoClientIsTrustedAndHandshakesSucceed(t *testing.T) {
	serving, clients, dir := newAuthority(t, "serving"), newAuthority(t, "clients"), t.TempDir()
	serving.pair(t, dir, "server")
	file := dir + "/ca.crt"
	config := servingTLS(t, dir, file)
	run(t, config)
	awaitOpen(t, config.Address)
	for _, tt := range []struct {
		what string
		make func()
		want int // of /metrics to a client with a certificate
	}{
		{"no file", func() {}, http.StatusUnauthorized},
		{"good", func() { writeFile(t, file, clients.pem) }, http.StatusOK},
		{"empty", func() { writeFile(t, file, nil) }, http.StatusUnauthorized},
		{"no certificate in it", func() { writeFile(t, file, []byte("none")) }, http.StatusUnauthorized},
		{"good again", func() { writeFile(t, file, clients.pem) }, http.StatusOK},
		{"a directory", func() { _, _ = os.Remove(file), os.Mkdir(file, 0o755) }, http.StatusUnauthorized},
	} {
		tt.make()
		for path, want := range map[string][2]int{"/healthz": {200, 200}, "/readyz": {200, 200}, "/metrics": {401, tt.want}} {
			for i, by := range []*authority{nil, clients} {
				if r, err := get(t, "https://"+config.Address+path, client(t, serving, by)); err != nil || r.StatusCode != want[i] {
					t.Errorf("%s: %s to a client with a certificate, %t: %v, %v", tt.what, path, by != nil, r, err)
				}
			}
		}
	}
}
