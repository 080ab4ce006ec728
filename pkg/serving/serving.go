// Package serving serves HTTP. A client's cost is bounded: at most 64 connections are open, and each ends when idle.
package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

const (
	// maxConnections bounds the open connections of an address: each takes a file descriptor, of which a process may
	// have as few as 1,024, and some kilobytes. More wait until one ends: by its client, or by a timeout.
	maxConnections = 64
	// MaxFile bounds a file of certificates or a key, in bytes.
	MaxFile = 1 << 20
)

// Listen opens an address. It serves HTTPS if handshake is set, which returns the settings of a handshake.
func Listen(address string, handshake func(*tls.ClientHelloInfo) (*tls.Config, error)) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	listener = netutil.LimitListener(listener, maxConnections)
	if handshake != nil {
		// The handshake's settings decide the version.
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: handshake})
	}
	return listener, nil
}

// TLSConfig returns the settings of a handshake, without a certificate. Without suites the choice is Go's.
func TLSConfig(lowest v1alpha1.TLSVersion, suites []string) *tls.Config {
	c := &tls.Config{MinVersion: lowest.Version(), NextProtos: []string{"http/1.1"}}
	for _, name := range suites {
		if id, err := v1alpha1.CipherSuite(name); err == nil {
			c.CipherSuites = append(c.CipherSuites, id)
		}
	}
	return c
}

// Serve serves HTTP/1.1 on a listener until ctx ends, and closes it. After an error it accepts no more connections.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second, // of a TLS handshake too (http.Server.tlsHandshakeTimeout)
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // anyone who can connect could fill the log
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // an error is about connections
	defer stop()
	err := server.Serve(listener)
	_ = server.Close() // its connections
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Problem is an error that may last. Only a change of it is logged, since every client can cause a handshake.
type Problem struct{ last atomic.Value }

// Note takes the current error; nil: none.
func (p *Problem) Note(err error, message string, fields ...any) {
	text := fmt.Sprint(err)
	if p.last.Swap(text) != text && err != nil {
		klog.ErrorS(err, message, fields...)
	}
}

// KeyPair is a serving certificate with its key, and the last good one of them.
type KeyPair struct {
	last    atomic.Pointer[tls.Certificate]
	problem Problem
}

// Read reads the files at each handshake. That costs less than the handshake, and a replaced certificate is served at
// once. While they cannot be used it returns the last good pair; if there is none, an error.
func (k *KeyPair) Read(certFile, keyFile string) (*tls.Certificate, error) {
	pair, err := readPair(certFile, keyFile)
	if err == nil {
		k.last.Store(pair)
	}
	last := k.last.Load()
	k.problem.Note(err, "Cannot use the serving certificate; the last valid one, if any, is used", "exists", last != nil)
	if last == nil {
		return nil, err
	}
	return last, nil
}

func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	certificate, key := filewatch.Read(certFile, MaxFile), filewatch.Read(keyFile, MaxFile)
	if err := cmp.Or(certificate.Err, key.Err); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate.Data, key.Data)
	if err != nil {
		return nil, fmt.Errorf("serving certificate %s: %w", certFile, err)
	}
	return &pair, nil
}
