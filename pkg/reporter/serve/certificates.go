package serve

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// maxFile bounds a file of certificates or keys, in bytes.
const maxFile = 1 << 20

var fileFailed = prometheus.NewDesc("kms_health_reporter_serving_file_failed",
	"1 while a file that TLS is served with cannot be used: certificate (with its key) or client_ca.", []string{"file"}, nil)

// certificates reads the configuration and the files at each handshake. While the key
// pair is invalid, the last valid one is served. While the client CAs are invalid, no
// client is trusted. It is a prometheus.Collector that reads the files too, so that a
// scrape through an old connection also shows their current state.
type certificates struct {
	current func() *v1alpha1.ServingTLS // nil: TLS is not served

	mu      sync.Mutex
	pair    *tls.Certificate // the last good one; nil before the first
	pairErr error            // of the files as last read
	caErr   error
}

// load reads the files again: handshakes are rare (a scraper keeps its connection), and
// a rotated file is used at once. pair is nil before the first valid one; clientCAs is
// nil if no client is trusted.
func (c *certificates) load(settings *v1alpha1.ServingTLS) (pair *tls.Certificate, clientCAs *x509.CertPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, err := readPair(settings)
	if err == nil {
		c.pair = made
	}
	if changed(c.pairErr, err) {
		switch {
		case err == nil:
			klog.InfoS("Serving certificate can be used again")
		case c.pair != nil:
			klog.ErrorS(err, "Cannot use the serving certificate; the last good one stays in use")
		default:
			klog.ErrorS(err, "Cannot use the serving certificate; no TLS connection is possible without one")
		}
	}
	c.pairErr = err
	if settings.ClientCAFile == "" {
		c.caErr = nil
		return c.pair, nil
	}
	clientCAs, err = readCAs(settings.ClientCAFile)
	if changed(c.caErr, err) {
		if err == nil {
			klog.InfoS("Client CAs can be used again")
		} else {
			klog.ErrorS(err, "Cannot use the client CAs; no client is trusted without them")
		}
	}
	c.caErr = err
	return c.pair, clientCAs
}

// changed reports whether an error differs from the last one. Only such errors are
// logged: every client can cause a handshake, but cannot change the files.
func changed(before, now error) bool {
	return (before == nil) != (now == nil) || now != nil && before.Error() != now.Error()
}

// forClient is a tls.Config's GetConfigForClient.
func (c *certificates) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	settings := c.current()
	if settings == nil {
		return nil, errors.New("no longer served by TLS")
	}
	pair, clientCAs := c.load(settings)
	if pair == nil {
		return nil, errors.New("no serving certificate yet")
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{*pair},
		MinVersion:   settings.MinVersion.Version(),
		NextProtos:   []string{"http/1.1"},
		// With a ticket a client could resume a session that an earlier CA trusted.
		SessionTicketsDisabled: true,
	}
	for _, name := range settings.CipherSuites {
		id, err := v1alpha1.CipherSuite(name)
		if err != nil {
			return nil, fmt.Errorf("cipher suite %s: %w", name, err)
		}
		config.CipherSuites = append(config.CipherSuites, id)
	}
	if clientCAs != nil {
		config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, clientCAs
	}
	return config, nil
}

// trusted reports whether a request may read everything: if client certificates are
// configured, only a client with a certificate of a trusted CA may.
func (c *certificates) trusted(r *http.Request) bool {
	settings := c.current()
	if settings == nil || r.TLS == nil {
		return false
	}
	return settings.ClientCAFile == "" || len(r.TLS.VerifiedChains) > 0
}

// Describe is a prometheus.Collector's.
func (c *certificates) Describe(all chan<- *prometheus.Desc) { all <- fileFailed }

// Collect is a prometheus.Collector's. Without TLS there is nothing to collect.
func (c *certificates) Collect(all chan<- prometheus.Metric) {
	settings := c.current()
	if settings == nil {
		return
	}
	c.load(settings)
	c.mu.Lock()
	defer c.mu.Unlock()
	for file, err := range map[string]error{"certificate": c.pairErr, "client_ca": c.caErr} {
		value := 0.0
		if err != nil {
			value = 1
		}
		all <- prometheus.MustNewConstMetric(fileFailed, prometheus.GaugeValue, value, file)
	}
}

func readPair(settings *v1alpha1.ServingTLS) (*tls.Certificate, error) {
	cert, key := filewatch.Read(settings.CertFile, maxFile), filewatch.Read(settings.KeyFile, maxFile)
	if err := cmp.Or(cert.Err, key.Err); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert.Data, key.Data)
	if err != nil {
		return nil, fmt.Errorf("serving certificate %s: %w", settings.CertFile, err)
	}
	return &pair, nil
}

func readCAs(path string) (*x509.CertPool, error) {
	content := filewatch.Read(path, maxFile)
	if content.Err != nil {
		return nil, fmt.Errorf("client CAs: %w", content.Err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content.Data) {
		return nil, fmt.Errorf("client CAs: %s holds no PEM certificate", path)
	}
	return pool, nil
}
