package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// certificate is a serving certificate. One of files is read at each handshake, which
// costs less than the handshake: a replaced certificate is served at once.
type certificate struct {
	dir string // empty: the certificate is self-signed, and stays as it is

	mu   sync.Mutex
	last *tls.Certificate // the last one that could be used
	err  string           // why the files cannot be used, as logged
}

// newCertificate returns the certificate tls.crt and key tls.key of a directory, or
// without one a self-signed certificate for the name of the host.
func newCertificate(dir string) (*certificate, error) {
	c := &certificate{dir: dir}
	pair, err := c.read()
	c.last = &pair
	return c, err
}

func (c *certificate) read() (tls.Certificate, error) {
	if c.dir != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key"))
		if err != nil {
			err = fmt.Errorf("the serving certificate in %s: %w", c.dir, err)
		}
		return pair, err
	}
	host, err := os.Hostname()
	if err != nil {
		return tls.Certificate{}, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}

// get is for tls.Config.GetCertificate. While the files cannot be used, the last good
// certificate is served.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		return c.last, nil
	}
	pair, err := c.read()
	switch {
	case err == nil:
		c.last, c.err = &pair, ""
	case err.Error() != c.err:
		c.err = err.Error()
		klog.ErrorS(err, "Failed to read the serving certificate; the last good one is served")
	}
	return c.last, nil
}
