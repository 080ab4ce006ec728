package controlplane

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Ports are in this range: above the ports of common services, and below Linux's range of source ports.
const lowestPort, highestPort = 15000, 32768

// freePort returns a loopback port on which nothing listens now. While this process runs, no other call in any
// process returns it.
//
// The port is below the kernel's range for source ports, unlike the port that a listener on port 0 gets. Tests stop
// servers while clients keep dialling the port. Inside that range, a dial can connect to itself (TCP's simultaneous
// open), or another connection may hold the port when the server restarts.
func freePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		// An abstract socket with the port's number reserves it until this process ends, and leaves no file.
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

// FreeAddress returns a host:port at which nothing listens.
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
