package controlplane

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Ports are of this range: above what services commonly use, and below Linux's range of source ports.
const lowestPort, highestPort = 15000, 32768

// freePort returns a loopback port on which nothing listens just now, and which no other
// freePort returns.
//
// It lies below the range from which the kernel takes the source ports of
// outgoing connections, unlike the port that a listener on port 0 gets. Ours is
// free for whole stretches of a test while its server is down and clients keep
// dialling it, and inside that range a dial can meet itself (TCP's simultaneous
// open), or another connection may hold the port when the server wants it back.
func freePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		// Reserved until this process ends, by an abstract socket with its number, of which no file is left.
		socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(socket, &unix.SockaddrUnix{Name: "@kms-health-port-" + strconv.Itoa(port)})
		}
		if err = errors.Join(err, listener.Close()); err == nil {
			return port, nil
		}
	}
	return 0, errors.New("no free port found on 127.0.0.1")
}

// FreeAddress is a host:port at which nothing listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return loopback(port)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
