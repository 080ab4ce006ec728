package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are of this range: above what services commonly use, and below Linux's range of source ports.
const lowestPort, highestPort = 15000, 32768

// reserved keep ports from other processes with tests, until this one ends.
var reserved struct {
	sync.Mutex
	listeners []net.Listener
}

// reserve reserves a port by an abstract socket with its number, of which no file is left.
func reserve(port int) bool {
	l, err := net.Listen("unix", "@kms-health-port-"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.listeners = append(reserved.listeners, l)
	return true
}

// freePort returns a loopback port on which nothing listens just now, and which no other
// freePort returns.
//
// It lies below the range from which the kernel takes the source ports of
// outgoing connections, unlike the port that a listener on port 0 gets. Ours is
// free for whole stretches of a test while its server is down and clients keep
// dialling it, and inside that range a dial can meet itself (TCP's simultaneous
// open), or another connection may hold the port when the server wants it back.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			last = err
			continue
		}
		if !reserve(port) {
			last = fmt.Errorf("port %d is reserved", port)
			_ = listener.Close()
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("no free port found on 127.0.0.1: %w", last)
}

// FreeAddress is freePort as host:port.
func FreeAddress() (string, error) {
	port, err := freePort()
	return loopback(port), err
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
