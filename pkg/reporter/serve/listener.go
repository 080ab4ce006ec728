package serve

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// listener is one open address. It ends by stop, or when connections can no longer be
// accepted.
type listener struct {
	wanted      string
	tls         bool
	address     string
	socket      net.Listener
	http        *http.Server
	connections connections
	ended       chan struct{} // closed at the end
	err         error         // why it ended; to be read after ended
}

// listen opens an address. A connection ends when a TLS handshake or a request's
// headers take longer than 5 s, after 90 s without a request, or as the least
// recently used of too many.
func (s *Server) listen(config *v1alpha1.Serving) (*listener, error) {
	socket, err := net.Listen("tcp", config.Address)
	if err != nil {
		return nil, err
	}
	l := &listener{wanted: config.Address, tls: config.TLS != nil, address: socket.Addr().String(), socket: socket, ended: make(chan struct{})}
	trusted := func(*http.Request) bool { return true }
	if l.tls {
		l.socket = tls.NewListener(socket, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.certificates.forClient})
		trusted = s.certificates.trusted
	}
	l.http = &http.Server{
		Handler:           s.handler(trusted),
		ConnState:         l.connections.track,
		ReadHeaderTimeout: 5 * time.Second, // of a handshake too (http.Server.tlsHandshakeTimeout)
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // anyone who can connect could fill the log
	}
	go func() {
		defer close(l.ended)
		l.err = l.http.Serve(l.socket)
	}()
	return l, nil
}

// serves reports whether the listener matches a configuration. Files and settings of TLS
// are not compared: they are read at each handshake.
func (l *listener) serves(config *v1alpha1.Serving) bool {
	return config != nil && l.wanted == config.Address && l.tls == (config.TLS != nil)
}

// stop closes the address and its connections. A nil listener has none.
func (l *listener) stop() {
	if l == nil {
		return
	}
	_ = l.socket.Close() // as below: errors about connections are irrelevant
	l.connections.close()
	_ = l.http.Close()
	<-l.ended
}

// failed returns a channel that is closed when connections can no longer be accepted; of
// a nil listener it is never closed.
func (l *listener) failed() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.ended
}
