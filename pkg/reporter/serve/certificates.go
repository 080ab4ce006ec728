package serve

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// maxFile bounds a file of certificates or keys, in bytes.
const maxFile = 1 << 20

var fileFailed = prometheus.NewDesc("kms_health_reporter_serving_file_failed",
	"1 while a file that TLS is served with cannot be used: certificate (with its key) or client_ca.", []string{"file"}, nil)

// readTimeout is how long a handshake or a scrape waits for the files.
const readTimeout = time.Second

// certificates reads the configuration and the files at each handshake. While the key
// pair is invalid, the last valid one is served. While the client CAs are invalid, no
// client is trusted. While reading hangs, what was last read is used. It is a
// prometheus.Collector that reads the files too, so that a scrape through an old connection
// also shows their current state.
type certificates struct {
	current func() *v1alpha1.ServingTLS // nil: TLS is not served
	read    func(path string, limit int64) filewatch.Content
	reader  chan struct{} // holds the one that reads: it may hang

	mu        sync.Mutex       // not held while files are read
	pair      *tls.Certificate // the last good one; nil before the first
	pairErr   error            // of the files as last read
	clientCAs *x509.CertPool   // as last read, of caFile; nil: no client is trusted
	caFile    string
	caErr     error
	hanging   bool // reading the files has not ended in time
}

func newCertificates(current func() *v1alpha1.ServingTLS) *certificates {
	return &certificates{current: current, read: filewatch.Read, reader: make(chan struct{}, 1)}
}

// load reads the files again: handshakes are rare (a scraper keeps its connection), and
// a rotated file is used at once. If that takes too long, it returns what was last read, so
// that only one goroutine hangs with the file system. pair is nil before the first valid one;
// clientCAs is nil if no client is trusted.
func (c *certificates) load(settings *v1alpha1.ServingTLS) (pair *tls.Certificate, clientCAs *x509.CertPool) {
	timeout := time.NewTimer(readTimeout)
	defer timeout.Stop()
	select {
	case c.reader <- struct{}{}:
		done := make(chan struct{})
		go func() {
			c.reload(settings)
			<-c.reader
			close(done)
		}()
		select {
		case <-done:
		case <-timeout.C:
		}
	case <-timeout.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.caFile == settings.ClientCAFile {
		clientCAs = c.clientCAs
	}
	return c.pair, clientCAs
}

// reload reads the files, and stores the result.
func (c *certificates) reload(settings *v1alpha1.ServingTLS) {
	ended := make(chan struct{})
	late := time.AfterFunc(readTimeout, func() { c.hangs(ended) })
	defer late.Stop()
	pair, pairErr := c.readPair(settings)
	clientCAs, caErr := c.readCAs(settings.ClientCAFile)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(ended)
	if c.hanging {
		c.hanging = false
		klog.InfoS("Serving files can be read again")
	}
	if pairErr == nil {
		c.pair = pair
	}
	if changed(c.pairErr, pairErr) {
		switch {
		case pairErr == nil:
			klog.InfoS("Serving certificate can be used again")
		case c.pair != nil:
			klog.ErrorS(pairErr, "Cannot use the serving certificate; the last good one stays in use")
		default:
			klog.ErrorS(pairErr, "Cannot use the serving certificate; no TLS connection is possible without one")
		}
	}
	if settings.ClientCAFile != "" && changed(c.caErr, caErr) {
		if caErr == nil {
			klog.InfoS("Client CAs can be used again")
		} else {
			klog.ErrorS(caErr, "Cannot use the client CAs; no client is trusted without them")
		}
	}
	c.clientCAs, c.caFile = clientCAs, settings.ClientCAFile
	c.pairErr, c.caErr = pairErr, caErr
}

// hangs reports a read that has not ended in time.
func (c *certificates) hangs(ended <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-ended:
	default:
		c.hanging = true
		klog.ErrorS(nil, "Cannot read the serving files in time; what was last read stays in use", "timeout", readTimeout)
	}
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
	for file, failed := range map[string]bool{
		"certificate": c.hanging || c.pairErr != nil, "client_ca": c.hanging && settings.ClientCAFile != "" || c.caErr != nil,
	} {
		value := 0.0
		if failed {
			value = 1
		}
		all <- prometheus.MustNewConstMetric(fileFailed, prometheus.GaugeValue, value, file)
	}
}

func (c *certificates) readPair(settings *v1alpha1.ServingTLS) (*tls.Certificate, error) {
	cert, key := c.read(settings.CertFile, maxFile), c.read(settings.KeyFile, maxFile)
	if err := cmp.Or(cert.Err, key.Err); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert.Data, key.Data)
	if err != nil {
		return nil, fmt.Errorf("serving certificate %s: %w", settings.CertFile, err)
	}
	return &pair, nil
}

// readCAs returns nil if no file is configured.
func (c *certificates) readCAs(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	content := c.read(path, maxFile)
	if content.Err != nil {
		return nil, fmt.Errorf("client CAs: %w", content.Err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content.Data) {
		return nil, fmt.Errorf("client CAs: %s holds no PEM certificate", path)
	}
	return pool, nil
}
