package kmsplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
	"k8s.io/kms/pkg/util"
)

const (
	// drainTime is what Close grants the calls under way.
	drainTime = 500 * time.Millisecond
	// handshakeTime bounds a client that connects and does not begin.
	handshakeTime = 5 * time.Second
)

// newServer returns the gRPC server of a plugin from its start, or its return from a
// crash, to the next crash or the end: gRPC's cannot be used again.
func (p *Plugin) newServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(p.intercept),
		grpc.StatsHandler(connections{p}),
		// A crash and Close leave no handler behind, and wait this long for a handshake.
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(handshakeTime),
	)
	// Neither address nor timeout is used: we listen ourselves.
	kmsapi.RegisterKeyManagementServiceServer(server, service.NewGRPCService("", 0, crypt{p.keys}))
	healthpb.RegisterHealthServer(server, health{on: &p.GRPCHealth})
	return server
}

// maxSocketName is what fits into sockaddr_un on Linux, less the final zero.
const maxSocketName = 107

// socketOf returns the path, or the abstract @name, of an endpoint as an
// EncryptionConfiguration writes it.
func socketOf(endpoint string) (string, error) {
	socket, err := util.ParseEndpoint(endpoint)
	switch {
	case err != nil:
		return "", err
	case !strings.HasPrefix(socket, "/") && !abstract(socket):
		return "", fmt.Errorf("invalid endpoint %q: want unix:///path or unix:///@name", endpoint)
	case len(socket) > maxSocketName:
		return "", fmt.Errorf("invalid endpoint %q: the name of a unix socket has at most %d bytes, not %d",
			endpoint, maxSocketName, len(socket))
	}
	return socket, nil
}

func abstract(socket string) bool { return strings.HasPrefix(socket, "@") }

// listen opens the socket, after removing what a crash left in its place. The file stays
// when the listener is closed, like after a crash of the process; see unlink.
func listen(socket string) (*net.UnixListener, error) {
	if err := removeStale(socket); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// removeStale removes a socket file without a listener. It does not remove
// the socket of a living process, and whatever is no socket.
func removeStale(socket string) error {
	if abstract(socket) {
		return nil
	}
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the way: it is not a socket", socket)
	}
	conn, err := net.DialTimeout("unix", socket, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%s is in use: a process listens on it", socket)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ECONNREFUSED):
		return unlink(socket)
	}
	return fmt.Errorf("%s is in the way: %w", socket, err)
}

// unlink removes the socket file. A missing file is not an error.
func unlink(socket string) error {
	if err := os.Remove(socket); err != nil && !abstract(socket) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
