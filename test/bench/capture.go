package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"time"

	"github.com/kms-health/kms-health/test/controlplane"
)

// capture returns the path of a file with the write that a reporter sends here,
// as it goes over the wire: what the floor sends, byte for byte but the times.
func (s *site) capture(ctx context.Context, c credential, keyIDs ...int) (path string, err error) {
	// By TLS, since a token is sent no other way.
	ca, err := controlplane.NewCA("capture")
	if err != nil {
		return "", err
	}
	listener, err := listenTLS(ca)
	if err != nil {
		return "", err
	}
	requests := make(chan []byte, 1)
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		wire, err := httputil.DumpRequest(r, true)
		if err != nil {
			return // the reporter sends another
		}
		select {
		case requests <- wire:
		default:
		}
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends when it is closed
	}()
	defer func() {
		err = errors.Join(err, server.Close())
		<-served
	}()

	c.server, c.ca = "https://"+listener.Addr().String(), ca.PEM()
	kubeconfig, err := s.kubeconfig(c)
	if err != nil {
		return "", err
	}
	if _, err := s.file.swap(s.render(settings{interval: time.Second, kubeconfig: kubeconfig, keyIDs: keyIDs})); err != nil {
		return "", err
	}
	reporter, err := s.start(nil)
	if err != nil {
		return "", err
	}
	defer reporter.stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case wire := <-requests:
		path = filepath.Join(s.dir, "request")
		return path, os.WriteFile(path, wire, 0o600)
	case <-ctx.Done():
		return "", errors.Join(fmt.Errorf("wait for a write of the reporter: %w", ctx.Err()), reporter.alive())
	}
}

func listenTLS(ca *controlplane.CA) (net.Listener, error) {
	files, err := ca.Serving("127.0.0.1")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	return tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
}
