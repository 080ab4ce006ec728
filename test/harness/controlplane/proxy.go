package controlplane

import (
	"io"
	"net"
	"sync"
	"time"
)

// proxyDialTimeout bounds the dial from the proxy to its target, on loopback.
const proxyDialTimeout = 5 * time.Second

// ProxyMode is what a Proxy does to the network between a client and a server.
type ProxyMode string

const (
	// Pass forwards.
	Pass ProxyMode = "Pass"
	// Refuse makes the kernel refuse new connections, as if no server listened. Open connections continue; see
	// ResetConnections.
	Refuse ProxyMode = "Refuse"
	// BlackHole accepts new connections and never answers, and open connections get no more data. A connection that
	// was in this mode never works again, as behind a firewall that lost its state: after Pass, only new connections
	// work.
	BlackHole ProxyMode = "BlackHole"
)

// Proxy forwards TCP connections from one loopback port, which does not change, to a target, if its mode permits it.
type Proxy struct {
	dial    func() (net.Conn, error)
	address string
	wg      sync.WaitGroup

	mu       sync.Mutex
	mode     ProxyMode
	listener net.Listener // nil while refusing
	conns    map[*proxyConn]bool
}

// proxyConn is a client's connection and its connection to the target, guarded by Proxy.mu.
type proxyConn struct {
	client    *net.TCPConn
	upstream  net.Conn
	swallowed bool // never forwarded again; the client's connection stays open
}

// NewProxy listens on a free port and passes connections to target, a host:port such as ControlPlane.Address.
func NewProxy(target string) (*Proxy, error) {
	return NewProxyBy(func() (net.Conn, error) { return net.DialTimeout("tcp", target, proxyDialTimeout) })
}

// NewProxyBy is NewProxy, with dial to connect to the target.
func NewProxyBy(dial func() (net.Conn, error)) (*Proxy, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{dial: dial, address: loopback(port), conns: map[*proxyConn]bool{}}
	err = p.SetMode(Pass)
	return p, err
}

// URL is the proxy's address for a client of a TLS server behind it.
func (p *Proxy) URL() string { return "https://" + p.address }

// SetMode sets the mode, from now on.
func (p *Proxy) SetMode(mode ProxyMode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case mode == Refuse && p.listener != nil:
		p.listener.Close()
		p.listener = nil
	case mode != Refuse && p.listener == nil:
		listener, err := net.Listen("tcp", p.address)
		if err != nil {
			return err
		}
		p.listener = listener
		p.wg.Go(func() { p.accept(listener) })
	}
	p.mode = mode
	for c := range p.conns {
		if mode == BlackHole {
			c.swallowed = true
			if c.upstream != nil {
				c.upstream.Close()
			}
		}
	}
	return nil
}

// ResetConnections ends every open connection by RST. It does not change the mode.
func (p *Proxy) ResetConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.reset()
	}
}

// Close resets all connections, frees the port, and waits until all goroutines have ended.
func (p *Proxy) Close() {
	_ = p.SetMode(Refuse) // Refuse returns no error
	p.ResetConnections()
	p.wg.Wait()
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		c := &proxyConn{client: client.(*net.TCPConn), swallowed: p.mode == BlackHole}
		if p.listener != listener { // the listener was closed after it accepted this connection
			c.reset()
		} else {
			p.conns[c] = true
			p.wg.Go(func() { p.serve(c) })
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) serve(c *proxyConn) {
	upstream, err := p.dial()
	p.mu.Lock()
	if err != nil {
		c.reset() // as a load balancer without a healthy server does
	} else if c.upstream = upstream; c.swallowed {
		upstream.Close()
	}
	p.mu.Unlock()
	if err == nil {
		p.wg.Go(func() {
			_, _ = io.Copy(upstream, c.client)
			upstream.Close()
		})
		_, _ = io.Copy(c.client, upstream)
	}
	p.mu.Lock()
	swallowed := c.swallowed
	p.mu.Unlock()
	if swallowed {
		_, _ = io.Copy(io.Discard, c.client) // read on, to notice when the client closes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.client.Close()
	delete(p.conns, c)
}

func (c *proxyConn) reset() {
	c.client.SetLinger(0)
	c.client.Close()
	if c.upstream != nil {
		c.upstream.Close()
	}
}
