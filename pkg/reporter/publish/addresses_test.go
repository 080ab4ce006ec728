package publish

import (
	"context"
	"encoding/binary"
	"errors"
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
	dir := credentialFiles(t, s)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	dropPackets(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), uint16(port)))
	resolveAll(t, netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1"))
	replaceIn(t, dir+"/kubeconfig", "127.0.0.1", "example.com")
	p := run(t, dir, 5*time.Second)
	p.offer("1")
	p.waitFor(t, Success, 1)
}

// A node that starts has an API server that answers 503 for a moment, and no route to a
// Service yet. The wait for the second server must not use up the write's timeout.
func TestServerThatDropsPacketsDoesNotDelayTheNextTryOfTheFirst(t *testing.T) {
	a, b := newServer(t), newServer(t)
	dir := credentialFiles(t, a)
	dropped := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), uint16(b.Listener.Addr().(*net.TCPAddr).Port))
	dropPackets(t, dropped)
	b.URL = "https://" + dropped.String()
	a.answers(fails(503))
	p := runAs(t, dir, through(waitLimit, time.Hour, a, b))
	began := time.Now()
	p.offer("1")
	a.next(t)
	a.answers(nil)
	p.waitFor(t, Success, 1)
	if took := time.Since(began); took > connectTimeout+2*time.Second {
		t.Errorf("the write took %s", took)
	}
	if s := p.Status(); s.Server != a.URL || !s.Preferred {
		t.Errorf("%+v", s)
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

// resolveAll makes every name resolve to these IPv4 addresses, in this order.
func resolveAll(t *testing.T, addresses ...netip.Addr) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		query := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(dnsAnswer(query[:n], addresses), from)
		}
	}()
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before; _ = conn.Close(); <-done })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// dnsAnswer answers a query of one question (RFC 1035, 4.1): for A with the addresses,
// for all else with nothing.
func dnsAnswer(query []byte, addresses []netip.Addr) []byte {
	const header, typeA = 12, 1
	end := header
	for query[end] != 0 { // the labels of the name
		end += int(query[end]) + 1
	}
	question := query[header : end+5]
	if binary.BigEndian.Uint16(query[end+1:]) != typeA {
		addresses = nil
	}
	answer := append([]byte{query[0], query[1], 0x84, 0, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0}, question...)
	for _, a := range addresses { // name (of the question), A, IN, TTL of 1 s, 4 bytes
		answer = append(answer, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 1, 0, 4)
		answer = append(answer, a.AsSlice()...)
	}
	return answer
}
