package publish

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/kms-health/kms-health/test/harness/must"
)

// clientGo returns the client that client-go makes from a kubeconfig. It avoids client-go's validation, which refuses a
// file and data for the same field, although the code that connects accepts both.
func clientGo(t *testing.T, path string) (*http.Client, error) {
	t.Helper()
	loaded, err := clientcmd.LoadFromFile(path)
	must.Succeed(t, err)
	must.Succeed(t, clientcmd.ResolveLocalPaths(loaded))
	c, u := loaded.Clusters["c"], loaded.AuthInfos["u"]
	config := &rest.Config{
		Host: c.Server, BearerToken: u.Token, BearerTokenFile: u.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure: c.InsecureSkipTLSVerify,
			CAFile:   c.CertificateAuthority, CAData: c.CertificateAuthorityData,
			CertFile: u.ClientCertificate, CertData: u.ClientCertificateData,
			KeyFile: u.ClientKey, KeyData: u.ClientKeyData,
		},
	}
	// HTTPClientFor would cache the transport, with goroutines that end only at some later garbage collection.
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.HTTPWrappersForConfig(config, &http.Transport{TLSClientConfig: settings})
	return &http.Client{Transport: transport}, err
}

// pair returns a certificate and its key, in PEM.
func pair(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	c, k, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	must.Succeed(t, err)
	return string(c), string(k)
}

// If a kubeconfig has a field twice, the reporter decides like client-go: for CA, certificate and key the data count,
// for the token the file.
func TestKubeconfigIsReadAsByClientGo(t *testing.T) {
	in := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	s := newServer(t)
	certFile, keyFile := pair(t, "file.test")
	certData, keyData := pair(t, "data.test")
	for name, tt := range map[string]struct{ cluster, user string }{
		"files": {"certificate-authority: ca.crt", "client-certificate: tls.crt, client-key: tls.key, tokenFile: token"},
		"data": {"certificate-authority-data: " + in(string(s.ca())),
			"client-certificate-data: " + in(certData) + ", client-key-data: " + in(keyData) + ", token: data"},
		"CA data of this server and a file of another":     {"certificate-authority: other.crt, certificate-authority-data: " + in(string(s.ca())), "tokenFile: token"},
		"CA data of another server and a file of this one": {"certificate-authority: ca.crt, certificate-authority-data: " + in(certFile), "tokenFile: token"},
		"CA data, and a file that does not exist":          {"certificate-authority: none, certificate-authority-data: " + in(string(s.ca())), "tokenFile: token"},
		"empty CA data and a file":                         {"certificate-authority: ca.crt, certificate-authority-data: ''", "tokenFile: token"},
		"CA data of no PEM and a file":                     {"certificate-authority: ca.crt, certificate-authority-data: " + in("x"), "tokenFile: token"},
		"both of a certificate and a key": {"certificate-authority: ca.crt", "client-certificate: tls.crt, client-key: tls.key, client-certificate-data: " + in(certData) +
			", client-key-data: " + in(keyData)},
		"certificate and key data, and files that do not exist": {"certificate-authority: ca.crt", "client-certificate: none, client-key: none, client-certificate-data: " +
			in(certData) + ", client-key-data: " + in(keyData)},
		"a certificate's data beside the file of its key": {"certificate-authority: ca.crt", "client-certificate: tls.crt, client-key: data.key, client-certificate-data: " + in(certData)},
		"a certificate's data beside another's key":       {"certificate-authority: ca.crt", "client-certificate: tls.crt, client-key: tls.key, client-certificate-data: " + in(certData)},
		"a token and a file of one":                       {"certificate-authority: ca.crt", "token: data, tokenFile: token"},
		"a token, and a file that does not exist":         {"certificate-authority: ca.crt", "token: data, tokenFile: none"},
		"a token and an empty file":                       {"certificate-authority: ca.crt", "token: data, tokenFile: empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"ca.crt": string(s.ca()), "other.crt": certFile, "tls.crt": certFile, "tls.key": keyFile,
				"data.key": keyData, "token": "file\n", "empty": "\n"} {
				write(t, dir+"/"+file, text)
			}
			write(t, dir+"/kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, %s}}], users: [{name: u, user: {%s}}]}`, s.URL, tt.cluster, tt.user))
			seen := make(chan string, 10)
			s.answers(func(w http.ResponseWriter, r *http.Request) {
				seen <- fmt.Sprint(names(r.TLS.PeerCertificates), r.Header.Get("Authorization"))
				accepts(w, r)
			})
			want := "refused"
			if client, err := clientGo(t, dir+"/kubeconfig"); err == nil {
				if answer, err := client.Post(s.URL, "", strings.NewReader("{}")); err == nil {
					_ = answer.Body.Close()
					want = <-seen
				}
				client.CloseIdleConnections()
			}
			p := run(t, dir, waitLimit)
			p.offer("1")
			await(t, "a write ends", func() bool { return p.lastError.Load() != nil })
			got := "refused"
			if p.LastError() == "" {
				got = <-seen
			}
			if got != want {
				t.Errorf("got %s (%s), client-go %s", got, p.LastError(), want)
			}
		})
	}
}

func names(certificates []*x509.Certificate) (all []string) {
	for _, c := range certificates {
		all = append(all, c.Subject.CommonName[:strings.IndexByte(c.Subject.CommonName+"@", '@')])
	}
	return all
}

func TestTokenBesideATokenFileIsUsedUntilTheFileHasOne(t *testing.T) {
	s := newServer(t)
	dir := credentialFiles(t, s)
	replaceIn(t, dir+"/kubeconfig", "tokenFile:", "token: inline, tokenFile:")
	write(t, dir+"/token", "")
	used := make(chan string, 1000)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		used <- r.Header.Get("Authorization")
		accepts(w, r)
	})
	p := run(t, dir, waitLimit)
	for i, step := range []struct{ file, want string }{
		{"", "inline"}, {"", "inline"}, {"first", "first"}, {"second", "second"}, {"", "second"}, {"third", "third"},
	} {
		write(t, dir+"/token", step.file)
		p.offer(fmt.Sprint(i))
		if got := <-used; got != "Bearer "+step.want {
			t.Errorf("write %d: %s, want %s", i, got, step.want)
		}
		p.waitFor(t, Success, i+1)
	}
}
