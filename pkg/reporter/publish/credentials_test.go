package publish

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"strings"
	"testing"
)

// certificateServer answers 401 to clients without a certificate or with another token
// than the first.
func certificateServer(t *testing.T) (s *server, dir string) {
	s = newServerAsking(t, tls.RequestClientCert)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if len(r.TLS.PeerCertificates) == 0 || r.Header.Get("Authorization") != "Bearer first" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	dir = credentialFiles(t, s)
	own := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/tls.crt", string(s.ca()))
	write(t, dir+"/tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	replaceIn(t, dir+"/kubeconfig", "user: {", "user: {client-certificate: tls.crt, client-key: tls.key, ")
	return s, dir
}

// A file may be empty after a full disk, or between truncating and writing. client-go
// treats an empty CA as "trust the system's CAs", and an empty certificate or key as
// "send none".
func TestEmptiedCredentialFileKeepsTheLastValidOnesInUse(t *testing.T) {
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key", "token", "kubeconfig"} {
		t.Run(name, func(t *testing.T) {
			lines := logLines(t)
			_, dir := certificateServer(t)
			p := run(t, dir, waitLimit)
			p.offer("1")
			p.waitFor(t, Success, 1)
			if err := os.Truncate(dir+"/"+name, 0); err != nil {
				t.Fatal(err)
			}
			p.offer("2")
			p.waitFor(t, Success, 2)
			if text := strings.Join(lines(), "\n"); !strings.Contains(text, "Credential files cannot be used; the last valid ones stay in use") {
				t.Errorf("logged %s", text)
			}
		})
	}
}

// Without earlier valid credentials nothing is sent.
func TestCredentialsWithAPartMissingAreNotUsed(t *testing.T) {
	const pair = "client-certificate: tls.crt, client-key: tls.key, "
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"empty CA":                     func(t *testing.T, dir string) { write(t, dir+"/ca.crt", "") },
		"CA of white space":            func(t *testing.T, dir string) { write(t, dir+"/ca.crt", " \n") },
		"CA without a certificate":     func(t *testing.T, dir string) { write(t, dir+"/ca.crt", "# to be filled in\n") },
		"empty certificate":            func(t *testing.T, dir string) { write(t, dir+"/tls.crt", "") },
		"empty key":                    func(t *testing.T, dir string) { write(t, dir+"/tls.key", "") },
		"both empty":                   func(t *testing.T, dir string) { write(t, dir+"/tls.crt", ""); write(t, dir+"/tls.key", "") },
		"certificate without a key":    func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", pair, "client-certificate: tls.crt, ") },
		"key without a certificate":    func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", pair, "client-key: tls.key, ") },
		"key within, no certificate":   func(t *testing.T, dir string) { replaceIn(t, dir+"/kubeconfig", pair, "client-key-data: QQ==, ") },
		"token within, of two lines":   func(t *testing.T, dir string) { inlineToken(t, dir, `"fir\nst"`) },
		"token within, of one control": func(t *testing.T, dir string) { inlineToken(t, dir, `"\x7f"`) },
		"token within, of white space": func(t *testing.T, dir string) { inlineToken(t, dir, `" "`) },
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := certificateServer(t)
			spoil(t, dir)
			p := run(t, dir, waitLimit)
			p.offer("1")
			p.waitFor(t, BadCredentials, 1)
			if n := len(s.requests); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

func inlineToken(t *testing.T, dir, token string) {
	t.Helper()
	replaceIn(t, dir+"/kubeconfig", "tokenFile: "+dir+"/token", "token: "+token)
}

func TestTokenWithinTheKubeconfigIsUsedUntilOneThatCannotBeSent(t *testing.T) {
	s := newServer(t)
	dir := credentialFiles(t, s)
	inlineToken(t, dir, `"first"`)
	p := run(t, dir, waitLimit)
	p.offer("1")
	p.waitFor(t, Success, 1)
	replaceIn(t, dir+"/kubeconfig", `"first"`, `"sec\nond"`)
	p.offer("2")
	p.waitFor(t, Success, 2)
	replaceIn(t, dir+"/kubeconfig", `"sec\nond"`, `"third\n"`) // as "echo" writes it
	p.offer("3")
	p.waitFor(t, Success, 3)
	var tokens bytes.Buffer
	for range 3 {
		tokens.WriteString(s.next(t).token + "\n")
	}
	if got, want := tokens.String(), "Bearer first\nBearer first\nBearer third\n"; got != want {
		t.Errorf("tokens:\n%swant\n%s", got, want)
	}
}
