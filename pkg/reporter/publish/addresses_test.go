package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// A name of an internal load balancer has an address in each zone. Packets to an address
// that is down get no answer.
func TestAddressThatDropsPacketsLeavesTimeForTheNextOne(t *testing.T) {
	s := newServer(t)
	port := s.Listener.Addr().(*net.TCPAddr).AddrPort().Port()
	dropPackets(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port))
	for _, timeout := range []time.Duration{connectTimeout / 2, connectTimeout, 2 * connectTimeout} {
		t.Run(timeout.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			conn, err := dialFirst(ctx, "tcp", []string{"127.0.0.2", "127.0.0.1"}, fmt.Sprint(port))
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		})
	}
}

// dropPackets makes a TCP address whose accept queue is full: the kernel drops further
// connections without an answer.
func dropPackets(t *testing.T, at netip.AddrPort) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		conn, err := net.DialTimeout("tcp", at.String(), 300*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("all connections were accepted")
}
