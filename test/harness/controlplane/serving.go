package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// kube-apiserver detects a changed certificate by inotify, or within a minute.
const servingReloadTimeout = 90 * time.Second

// ReplaceServingCertificate gives the API server a certificate for names, signed
// by ca, and waits until a running one presents it; one that is stopped will
// when it starts. Admin clients made from then on trust ca, and request the
// first of names: a certificate need not hold 127.0.0.1 or localhost.
func (c *ControlPlane) ReplaceServingCertificate(ctx context.Context, ca *CA, names ...string) error {
	if err := c.writeServingCertificate(ca, names...); err != nil {
		return err
	}
	p := c.apiServer()
	if !p.running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, servingReloadTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), ServerName: names[0]}}
	err := p.await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pollCallTimeout)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", c.Address())
		if err != nil {
			return err
		}
		defer conn.Close()
		presented := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw
		c.mu.Lock()
		defer c.mu.Unlock()
		if !bytes.Equal(presented, c.servingDER) {
			return errors.New("the server still presents its former certificate")
		}
		return nil
	})
	if err != nil {
		return p.explain(fmt.Errorf("wait for the new serving certificate: %w", err))
	}
	return nil
}

// ServingCA is the authority that the API server's certificate comes from.
func (c *ControlPlane) ServingCA() *CA {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servingCA
}

func (c *ControlPlane) writeServingCertificate(ca *CA, names ...string) error {
	pair, err := ca.Serving(names...)
	if err != nil {
		return err
	}
	// Between the two writes the files do not match. kube-apiserver then keeps
	// what it has and checks again.
	if err := writeFile(filepath.Join(c.dir, servingKeyFile), pair.Key); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(c.dir, servingCertFile), pair.Cert); err != nil {
		return err
	}
	block, _ := pem.Decode(pair.Cert)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servingCA, c.servingNames, c.servingDER = ca, names, block.Bytes
	return nil
}
