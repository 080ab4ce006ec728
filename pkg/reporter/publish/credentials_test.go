package publish

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/scraped"
)

// certificateServer answers 401 to clients without a certificate, or with another token than "first".
func certificateServer(t *testing.T) (s *server, dir string) {
	s = newServer(t)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 || r.Header.Get("Authorization") != "Bearer first" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		accepts(w, r)
	})
	dir = credentialFiles(t, s)
	own := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	must.Succeed(t, err)
	write(t, dir+"/tls.crt", string(s.ca()))
	write(t, dir+"/tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	replaceIn(t, dir+"/kubeconfig", "user: {", "user: {client-certificate: tls.crt, client-key: tls.key, ")
	return s, dir
}

// A file may be empty after a full disk, or between truncating and writing. client-go
// treats an empty CA as "trust the system's CAs", and an empty certificate or key as
// "send none".
func TestEmptiedOrDeletedCredentialFileKeepsTheLastValidOnesInUse(t *testing.T) {
	empty := func(path string) error { return os.Truncate(path, 0) }
	for name, spoil := range map[string]func(string) error{
		"ca.crt": empty, "tls.crt": empty, "tls.key": empty, "token": os.Remove, "kubeconfig": empty,
	} {
		t.Run(name, func(t *testing.T) {
			lines := logLines(t)
			_, dir := certificateServer(t)
			p := run(t, dir, waitLimit)
			p.report(t, "1", Success, 1)
			must.Succeed(t, spoil(dir+"/"+name))
			p.report(t, "2", Success, 2)
			if name == "token" { // the next write uses a new token
				write(t, dir+"/token", "second")
				p.offer("3")
				p.waitFor(t, Unauthorized, 1) // the server accepts only the first token
			}
			if text := strings.Join(lines(), "\n"); !strings.Contains(text, "Credential files cannot be used; the last valid ones stay in use") {
				t.Errorf("logged %s", text)
			}
		})
	}
}

// Without earlier valid credentials nothing is sent.
func TestInvalidCredentialsAreNotUsedUntilTheyAreValid(t *testing.T) {
	const pair = "client-certificate: tls.crt, client-key: tls.key, "
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"empty CA":                      func(t *testing.T, dir string) { write(t, dir+"/ca.crt", "") },
		"CA of white space":             func(t *testing.T, dir string) { write(t, dir+"/ca.crt", " \n") },
		"CA without a certificate":      func(t *testing.T, dir string) { write(t, dir+"/ca.crt", "# to be filled in\n") },
		"empty certificate":             func(t *testing.T, dir string) { write(t, dir+"/tls.crt", "") },
		"empty key":                     func(t *testing.T, dir string) { write(t, dir+"/tls.key", "") },
		"both empty":                    func(t *testing.T, dir string) { write(t, dir+"/tls.crt", ""); write(t, dir+"/tls.key", "") },
		"certificate without a key":     func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", pair, "client-certificate: tls.crt, ") },
		"key without a certificate":     func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", pair, "client-key: tls.key, ") },
		"key within and no certificate": func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", pair, "client-key-data: QQ==, ") },
		"token within of two lines":     func(t *testing.T, dir string) { inlineToken(t, dir, `"fir\nst"`) },
		"token within of one control":   func(t *testing.T, dir string) { inlineToken(t, dir, `"\x7f"`) },
		"token within of white space":   func(t *testing.T, dir string) { inlineToken(t, dir, `" "`) },
		"empty token":                   func(t *testing.T, dir string) { write(t, dir+"/token", "\n") },
		"token of two lines":            func(t *testing.T, dir string) { write(t, dir+"/token", "a\nb") },
		"empty kubeconfig":              func(t *testing.T, dir string) { write(t, dir+"/kubeconfig", "") },
		"no kubeconfig":                 func(_ *testing.T, dir string) { _ = os.Remove(dir + "/kubeconfig") },
		"no cluster":                    func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", "name: c,", "name: d,") },
		"no server":                     func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", "server: ", `server: "", another: `) },
		"a proxy": func(t *testing.T, dir string) {
			replaceIn(t, dir+"/kubeconfig", "server: ", "proxy-url: 'http://proxy:3128', server: ")
		},
		"a FIFO": func(_ *testing.T, dir string) {
			_, _ = os.Remove(dir+"/token"), syscall.Mkfifo(dir+"/token", 0o600)
		},
		"an endless device": func(_ *testing.T, dir string) {
			_, _ = os.Remove(dir+"/ca.crt"), os.Symlink("/dev/zero", dir+"/ca.crt")
		},
		"a command": func(t *testing.T, dir string) {
			replaceIn(t, dir+"/kubeconfig", "user: {", "user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: ["+dir+"/ran], interactiveMode: Never}, ")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := certificateServer(t)
			good := map[string][]byte{}
			for _, file := range []string{"ca.crt", "tls.crt", "tls.key", "token", "kubeconfig"} {
				var err error
				if good[file], err = os.ReadFile(dir + "/" + file); err != nil {
					t.Fatal(err)
				}
			}
			spoil(t, dir)
			p := run(t, dir, waitLimit)
			p.report(t, "1", BadCredentials, 1)
			if n := len(s.requests); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
			if _, err := os.Stat(dir + "/ran"); err == nil {
				t.Error("a command was run")
			}
			for file, data := range good {
				write(t, dir+"/"+file, string(data))
			}
			p.waitFor(t, Success, 1)
		})
	}
}

func TestRefusedWriteReadsTheCredentialsAgain(t *testing.T) {
	s := newServer(t)
	dir := credentialFiles(t, s)
	p := run(t, dir, waitLimit)
	p.credentials.age = time.Hour
	p.report(t, "1", Success, 1)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer second" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		accepts(w, r)
	})
	write(t, dir+"/token", "second")
	p.report(t, "2", Unauthorized, 1)
	p.waitFor(t, Success, 2)
}

func inlineToken(t *testing.T, dir, token string) {
	t.Helper()
	replaceIn(t, dir+"/kubeconfig", "tokenFile: "+dir+"/token", "token: "+token)
}

// The owner of a sidecar provides the certificate, so only the reporter can report when it expires. Prometheus' clock may
// be another one, so a rule must not need it.
func TestLifetimeOfAClientCertificateIsAMetric(t *testing.T) {
	s, dir := certificateServer(t)
	p := run(t, dir, waitLimit)
	p.report(t, "1", Success, 1)
	own := s.Certificate()
	text := p.metrics.Text()
	remaining, want := scraped.Value(text, contract.MetricCertificateRemaining), time.Until(own.NotAfter).Seconds()
	if lifetime := scraped.Value(text, contract.MetricCertificateLifetime); lifetime != own.NotAfter.Sub(own.NotBefore).Seconds() ||
		remaining < want || remaining > want+waitLimit.Seconds() {
		t.Errorf("%v of %v seconds, want %v, of %s until %s", remaining, lifetime, want, own.NotBefore, own.NotAfter)
	}
}
