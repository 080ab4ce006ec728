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

// writeTimeout bounds one write to the socket. A write waits only when the socket's
// buffer is full, so this is for how long a plugin may not read: it is stopped, or
// stuck.
const writeTimeout = 5 * time.Second

// dialer connects to a unix socket. It remembers why it last could not, since gRPC
// wraps the reason in many words of its own; and the connection, to break it.
type dialer struct {
	address     string
	connections *atomic.Int64 // counts those that were made

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
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.address)
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
	d.connections.Add(1)
	d.conn = &boundedConn{Conn: conn}
	return d.conn, nil
}

// stalled says whether the connection broke because the plugin did not read.
func (d *dialer) stalled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conn != nil && d.conn.stalled.Load()
}

// connected says whether the kernel has connected us: the plugin listens, though it
// may not have answered yet.
func (d *dialer) connected() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conn != nil && !d.conn.closed.Load()
}

// dialling says whether the kernel is still connecting. That takes no time, but where a
// file system hangs.
func (d *dialer) dialling() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy
}

// abort breaks the connection. gRPC would first send a farewell, and wait for
// seconds where the plugin does not read.
func (d *dialer) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// failure returns why the last attempt failed, in the kernel's words; nil when
// it did not.
func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var kernel syscall.Errno
	if errors.As(d.err, &kernel) {
		return kernel
	}
	return d.err
}

// boundedConn breaks when the other side does not read. gRPC would wait for ever, and
// keep every further call in memory; and after a write that failed it would wait for
// the reader to notice.
type boundedConn struct {
	net.Conn
	closed, stalled atomic.Bool
}

func (c *boundedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
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
