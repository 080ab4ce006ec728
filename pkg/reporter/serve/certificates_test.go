package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

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

func TestClientsWithoutACertificateSeeOnlyLiveness(t *testing.T) {
	serving, clients, strangers, dir := newAuthority(t, "serving"), newAuthority(t, "clients"), newAuthority(t, "strangers"), t.TempDir()
	serving.pair(t, dir, "server")
	writeFile(t, dir+"/ca.crt", clients.pem)
	s := run(t, servingTLS(dir, dir+"/ca.crt"))
	base := "https://" + s.await(t)
	for path, want := range map[string]string{"/healthz": "200 200 refused", "/readyz": "200 200 refused", "/metrics": "401 200 refused", "/kms-providers": "401 200 refused"} {
		var got []string
		for _, by := range []*authority{nil, clients, strangers} {
			r, err := get(t, base+path, client(t, serving, by))
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

func TestTheLastValidKeyPairIsServedWhileTheFilesAreInvalid(t *testing.T) {
	ca, dir, other := newAuthority(t, "ca"), t.TempDir(), t.TempDir()
	ca.pair(t, dir, "first")
	ca.pair(t, other, "other")
	otherKey, err := os.ReadFile(other + "/tls.key")
	if err != nil {
		t.Fatal(err)
	}
	s := run(t, servingTLS(dir, ""))
	url := "https://" + s.await(t)
	presented := func() string {
		t.Helper()
		r, err := get(t, url+"/healthz", &tls.Config{RootCAs: ca.pool()})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(r.StatusCode, " ", r.TLS.PeerCertificates[0].Subject.CommonName)
	}
	failed := `kms_health_reporter_serving_file_failed{file="certificate"} `

	// There was no connection yet, so only Apply has read the files.
	eventually(t, "the files are read", func() bool {
		s.certificates.mu.Lock()
		defer s.certificates.mu.Unlock()
		return s.certificates.pair != nil
	})
	for _, broken := range []struct {
		what string
		make func()
	}{
		{"no key", func() { _ = os.Remove(dir + "/tls.key") }},
		{"the key of another certificate", func() { writeFile(t, dir+"/tls.key", otherKey) }},
		{"no certificate", func() {
			writeFile(t, dir+"/tls.crt", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
		}},
		{"empty files", func() { writeFile(t, dir+"/tls.crt", nil); writeFile(t, dir+"/tls.key", nil) }},
	} {
		before := logged(dir, "Cannot use the serving certificate")
		broken.make()
		for range 3 {
			if got := presented(); got != "200 first" {
				t.Errorf("%s: got %s", broken.what, got)
			}
		}
		if _, text := body(t, url+"/metrics", &tls.Config{RootCAs: ca.pool()}); !strings.Contains(text, failed+"1\n") {
			t.Errorf("%s: no %s1", broken.what, failed)
		}
		if n := logged(dir, "Cannot use the serving certificate") - before; n != 1 {
			t.Errorf("%s: logged %d times, want once", broken.what, n)
		}
	}
	ca.pair(t, dir, "second")
	if got := presented(); got != "200 second" {
		t.Errorf("a new pair: got %s", got)
	}
	if _, text := body(t, url+"/metrics", &tls.Config{RootCAs: ca.pool()}); !strings.Contains(text, failed+"0\n") {
		t.Errorf("a new pair: no %s0", failed)
	}
}

// A file system that hangs, such as one over a network, must not keep a goroutine for each
// connection: anyone can open connections.
func TestHandshakesEndWhileTheFilesCannotBeRead(t *testing.T) {
	for name, seen := range map[string]bool{"after a good pair": true, "before the first one": false} {
		t.Run(name, func(t *testing.T) {
			ca, dir := newAuthority(t, "ca"), t.TempDir()
			clients := newAuthority(t, "clients")
			ca.pair(t, dir, "first")
			writeFile(t, dir+"/ca.crt", clients.pem)
			var hangs atomic.Bool
			hangs.Store(!seen)
			end, readers := make(chan struct{}), atomic.Int32{}
			c := newCertificates(func() *v1alpha1.ServingTLS { return servingTLS(dir, dir+"/ca.crt").TLS })
			c.read = func(path string, limit int64) filewatch.Content {
				readers.Add(1)
				defer readers.Add(-1)
				if hangs.Load() {
					<-end
				}
				return filewatch.Read(path, limit)
			}
			if seen {
				if _, err := c.forClient(nil); err != nil {
					t.Fatal(err)
				}
				hangs.Store(true)
			}
			before := runtime.NumGoroutine()
			const connections = 200
			results := make(chan error, connections)
			for range connections {
				go func() {
					config, err := c.forClient(nil)
					if err == nil && (config.Certificates[0].Leaf.Subject.CommonName != "first" || config.ClientCAs == nil) {
						err = errors.New("another configuration")
					}
					results <- err
				}()
			}
			for range connections {
				if err := <-results; (err == nil) != seen {
					t.Error(err)
				}
			}
			eventually(t, "the goroutines of connections have ended", func() bool { return runtime.NumGoroutine() <= before+5 })
			if n := readers.Load(); n != 1 {
				t.Errorf("%d readers", n)
			}
			failing := func() (sum float64) {
				metrics := make(chan prometheus.Metric, 2)
				c.Collect(metrics)
				for range 2 {
					var m dto.Metric
					if err := (<-metrics).Write(&m); err != nil {
						t.Fatal(err)
					}
					sum += m.GetGauge().GetValue()
				}
				return sum
			}
			if failing() != 2 || logged("", "Cannot read the serving files in time") == 0 {
				t.Error("it is not reported")
			}

			hangs.Store(false)
			close(end)
			ca.pair(t, dir, "second")
			eventually(t, "the files are read again", func() bool {
				config, err := c.forClient(nil)
				return err == nil && config.Certificates[0].Leaf.Subject.CommonName == "second"
			})
			if failing() != 0 {
				t.Error("it is reported for ever")
			}
		})
	}
}

func TestHandshakesFailBeforeTheFirstGoodKeyPair(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	s := run(t, servingTLS(dir, ""))
	url := "https://" + s.await(t) + "/healthz"
	for range 3 {
		if _, err := get(t, url, &tls.Config{RootCAs: ca.pool()}); err == nil {
			t.Error("served without a certificate")
		}
	}
	if n := logged(dir, "Cannot use the serving certificate; no TLS connection is possible"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	ca.pair(t, dir, "first")
	if r, err := get(t, url, &tls.Config{RootCAs: ca.pool()}); err != nil || r.StatusCode != http.StatusOK {
		t.Error(r, err)
	}
}

func TestWithoutUsableClientCAsNoClientIsTrustedAndHandshakesSucceed(t *testing.T) {
	serving, clients, dir := newAuthority(t, "serving"), newAuthority(t, "clients"), t.TempDir()
	serving.pair(t, dir, "server")
	s := run(t, servingTLS(dir, dir+"/ca.crt"))
	base := "https://" + s.await(t)
	failed := `kms_health_reporter_serving_file_failed{file="client_ca"} `
	for _, tt := range []struct {
		what string
		make func()
		want int // of /metrics to a client with a certificate
	}{
		{"no file", func() {}, http.StatusUnauthorized},
		{"good", func() { writeFile(t, dir+"/ca.crt", clients.pem) }, http.StatusOK},
		{"empty", func() { writeFile(t, dir+"/ca.crt", nil) }, http.StatusUnauthorized},
		{"no certificate in it", func() { writeFile(t, dir+"/ca.crt", []byte("none")) }, http.StatusUnauthorized},
		{"good again", func() { writeFile(t, dir+"/ca.crt", clients.pem) }, http.StatusOK},
		{"a directory", func() {
			if err := os.Remove(dir + "/ca.crt"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(dir+"/ca.crt", 0o755); err != nil {
				t.Fatal(err)
			}
		}, http.StatusUnauthorized},
	} {
		before := logged(dir, "Cannot use the client CAs")
		tt.make()
		for path, want := range map[string][2]int{"/healthz": {200, 200}, "/readyz": {200, 200}, "/metrics": {401, tt.want}, "/kms-providers": {401, tt.want}} {
			for i, by := range []*authority{nil, clients} {
				if code, text := body(t, base+path, client(t, serving, by)); code != want[i] || path == "/metrics" && code == 200 && !strings.Contains(text, failed+"0\n") {
					t.Errorf("%s: %s to %v: %d %s", tt.what, path, by != nil, code, text)
				}
			}
		}
		if n := logged(dir, "Cannot use the client CAs") - before; tt.want == http.StatusUnauthorized && n > 1 {
			t.Errorf("%s: logged %d times, want once", tt.what, n)
		}
	}
	if n := logged(dir, "Cannot use the client CAs"); n != 3 { // "empty" and "no certificate in it" are one reason
		t.Errorf("logged %d times, want 3", n)
	}
}
