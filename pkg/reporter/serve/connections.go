package serve

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxConnections bounds the open connections of a server: each takes a file
// descriptor, of which a process may have as few as 1,024, and some kilobytes.
const maxConnections = 64

// connections closes the least recently used connection when there is one too
// many. If new connections had to wait instead, a client could block all others by
// holding all connections, with a request on each before it times out.
type connections struct {
	mu   sync.Mutex
	open []net.Conn // the least recently used first
}

// track is a http.Server's ConnState, called for each connection when it is new, when
// a request begins and ends, and when it is closed.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.open, conn)
	switch {
	case at >= 0:
		c.open = slices.Delete(c.open, at, at+1)
	case state != http.StateNew:
		return // closed below
	}
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	if len(c.open) == maxConnections {
		closeNow(c.open[0])
		c.open = slices.Delete(c.open, 0, 1)
	}
	c.open = append(c.open, conn)
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		closeNow(conn)
	}
	c.open = nil
}

// closeNow closes a connection without TLS' last message, which waits up to 5 s
// for a client that does not read.
func closeNow(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.Close() // nothing more is sent, so nothing can be lost
}
