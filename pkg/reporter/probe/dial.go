package probe

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const writeTimeout = 5 * time.Second // of one write to the socket, which blocks only while the plugin does not read

// dialer connects to a unix socket. It keeps the error of the last failure, since gRPC
// wraps the reason in a long text; and the connection, to be able to break it.
type dialer struct {
	plugin *Plugin

	mu     sync.Mutex
	busy   bool // the kernel is connecting
	err    error
	conn   *boundedConn
	closed bool
}

func (d *dialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	d.mu.Lock()
	d.busy = true
	d.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.plugin.address)
	if err == nil {
		d.plugin.sockets.connected(d.plugin.address)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy, d.err = false, err
	if err != nil {
		return nil, err
	}
	if d.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	d.plugin.connections.Add(1)
	d.conn = &boundedConn{Conn: conn}
	return d.conn, nil
}

// sockets notices when a path no longer leads to the socket that was connected to: a process that listens creates a new
// file, and one that ends removes it. A server that only closes connections keeps it. An abstract socket has no
// file, so its replacement is not noticed.
type sockets struct {
	replaced atomic.Bool                    // since the last probe
	last     atomic.Pointer[syscall.Stat_t] // of the socket that was connected to; nil before that
	looking  chan path                      // has the result of a look that has not ended; used by look only
}

func (s *sockets) connected(address string) {
	now := &syscall.Stat_t{}
	if syscall.Stat(address, now) != nil {
		return
	}
	if last := s.last.Swap(now); last != nil && !equal(last, now) {
		s.replaced.Store(true)
	}
}

func equal(a, b *syscall.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino && a.Ctim == b.Ctim }

// path is where the path of a socket leads.
type path int

const (
	same    path = iota // to the socket that was connected to
	moved               // to another one, or to none: the next process that connects gets that
	unknown             // the file system does not answer
)

// look returns where the path leads. A file system that does not answer within the timeout blocks one thread, however
// often it is asked. look may not be called concurrently with itself.
func (s *sockets) look(address string, timeout time.Duration) path {
	last := s.last.Load()
	if last == nil {
		return same
	}
	if s.looking == nil {
		looking := make(chan path, 1)
		s.looking = looking
		go func() {
			var now syscall.Stat_t
			found := same
			if syscall.Stat(address, &now) != nil || !equal(last, &now) {
				found = moved
			}
			looking <- found
		}()
	}
	select {
	case found := <-s.looking:
		s.looking = nil
		return found
	case <-time.After(timeout):
		return unknown
	}
}

// connection is the state of a connection, or of the last attempt to make one.
type connection struct {
	failed    error // of the last attempt: the kernel's bare error if connect(2) failed; nil if it succeeded
	connected bool  // the kernel has made it: the plugin listens, although it may not have answered yet
	stalled   bool  // it broke because the plugin did not read
	dialling  bool  // the kernel is still connecting, which takes no time, unless the file system hangs
}

func (d *dialer) state() connection {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := connection{failed: d.err, dialling: d.busy}
	if call, ok := errors.AsType[*os.SyscallError](d.err); ok && call.Syscall == "connect" {
		s.failed = call.Err
	}
	if d.conn != nil {
		s.connected, s.stalled = !d.conn.closed.Load(), d.conn.stalled.Load()
	}
	return s
}

// abort breaks the connection. gRPC would first send GOAWAY, and wait for seconds if the plugin does not read.
func (d *dialer) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// boundedConn breaks when the other side does not read. gRPC would wait forever, and keep every further call in memory;
// and after a failed write it would wait until its reader notices.
type boundedConn struct {
	net.Conn
	closed, stalled atomic.Bool
}

func (c *boundedConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only if the connection is closed
	n, err := c.Conn.Write(b)
	if err != nil {
		c.stalled.Store(errors.Is(err, os.ErrDeadlineExceeded))
		_ = c.Close()
	}
	return n, err
}

func (c *boundedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
