package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// proxyDialTimeout bounds the way from the proxy to its target, on loopback.
const proxyDialTimeout = 5 * time.Second

// ProxyMode is what a Proxy does to the network between a client and a server.
type ProxyMode int

const (
	// Pass forwards.
	Pass ProxyMode = iota
	// Refuse makes the kernel refuse new connections, as when no server is
	// there. Those that are open go on; see ResetConnections.
	Refuse
	// BlackHole swallows: new connections are accepted and answered nothing, and
	// those that are open get no more data. A connection that was in this mode is
	// lost for good, as behind a firewall that forgot it: after a return to
	// Pass only new ones work.
	BlackHole
)

func (m ProxyMode) String() string {
	switch m {
	case Pass:
		return "Pass"
	case Refuse:
		return "Refuse"
	case BlackHole:
		return "BlackHole"
	}
	return fmt.Sprintf("ProxyMode(%d)", int(m))
}

// Proxy forwards TCP connections from one loopback port, fixed for its whole
// life, to a target, as long as its mode lets it.
type Proxy struct {
	target  string
	address string
	ctx     context.Context // ends dials
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	mode     ProxyMode
	listener net.Listener // nil while refusing
	conns    map[*proxyConn]struct{}
	accepted int
}

// NewProxy listens on a free port and passes connections to target, a host:port
// such as ControlPlane.Address.
func NewProxy(target string) (*Proxy, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, address: loopback(port), conns: map[*proxyConn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// Address is the proxy's host:port.
func (p *Proxy) Address() string { return p.address }

// URL is the proxy's address for a client of a TLS server behind it.
func (p *Proxy) URL() string { return "https://" + p.address }

// Accepted counts the connections that clients have made so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// SetMode changes what happens from now on.
func (p *Proxy) SetMode(mode ProxyMode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("the proxy is closed")
	}
	switch mode {
	case Refuse:
		p.unlisten()
	case Pass, BlackHole:
		if err := p.listen(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("no such mode: %v", mode)
	}
	p.mode = mode
	if mode == BlackHole {
		for conn := range p.conns {
			conn.swallow()
		}
	}
	return nil
}

// ResetConnections ends every open connection by RST, and leaves the mode as it
// is.
func (p *Proxy) ResetConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.reset()
	}
}

// Close resets all connections, frees the port, and waits until nothing runs.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.unlisten()
	for conn := range p.conns {
		conn.reset()
	}
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
}

// listen needs p.mu.
func (p *Proxy) listen() error {
	if p.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

// unlisten needs p.mu.
func (p *Proxy) unlisten() {
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		conn := &proxyConn{client: client.(*net.TCPConn)}
		p.mu.Lock()
		// Accepted before, and handed to us after, the listener was closed.
		if p.closed || p.listener != listener {
			p.mu.Unlock()
			conn.reset()
			continue
		}
		p.accepted++
		p.conns[conn] = struct{}{}
		if p.mode == BlackHole {
			conn.swallow()
		}
		p.wg.Go(func() { p.serve(conn) })
		p.mu.Unlock()
	}
}

func (p *Proxy) serve(conn *proxyConn) {
	defer func() {
		p.mu.Lock()
		delete(p.conns, conn)
		p.mu.Unlock()
		conn.close()
	}()
	dialer := net.Dialer{Timeout: proxyDialTimeout}
	upstream, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		// What a client gets from a load balancer without a healthy server.
		conn.reset()
		return
	}
	conn.attach(upstream)
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(upstream, conn.client)
		upstream.Close()
	})
	_, _ = io.Copy(conn.client, upstream)
	if conn.isSwallowed() {
		// Still read, so that a client that gives up is noticed.
		_, _ = io.Copy(io.Discard, conn.client)
	}
	conn.client.Close()
	sending.Wait()
}

// proxyConn is one client's connection, and the one to the target.
type proxyConn struct {
	client *net.TCPConn

	mu        sync.Mutex
	upstream  net.Conn
	swallowed bool
	ended     bool
}

func (c *proxyConn) isSwallowed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.swallowed
}

// swallow cuts the connection off from its target for good. The client's side
// stays open.
func (c *proxyConn) swallow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swallowed = true
	if c.upstream != nil {
		c.upstream.Close()
	}
}

// attach gives the connection its target, which ends with it.
func (c *proxyConn) attach(upstream net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upstream = upstream
	if c.ended || c.swallowed {
		upstream.Close()
	}
}

func (c *proxyConn) reset() {
	c.client.SetLinger(0)
	c.close()
}

func (c *proxyConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.client.Close()
	if c.upstream != nil {
		c.upstream.Close()
	}
}
