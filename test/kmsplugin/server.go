package kmsplugin

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

// server is the gRPC server of a plugin from its start, or its return from a
// crash, to the next crash or the end: gRPC's cannot be used again.
type server struct {
	grpc    *grpc.Server
	serving sync.WaitGroup

	// conns are those accepted and not yet closed. gRPC knows them only after
	// the handshake, and waits two minutes for one that a client never begins:
	// to break all at once they must be tracked.
	mu     sync.Mutex
	conns  map[*conn]struct{}
	broken bool
}

func (p *Plugin) newServer() *server {
	s := &server{
		grpc: grpc.NewServer(
			grpc.UnaryInterceptor(p.intercept),
			grpc.StatsHandler(connections{p.counters}),
			// A crash and Close leave no handler behind.
			grpc.WaitForHandlers(true),
		),
		conns: map[*conn]struct{}{},
	}
	// Neither address nor timeout is used: we listen ourselves.
	kmsapi.RegisterKeyManagementServiceServer(s.grpc, service.NewGRPCService("", 0, crypt{p.keys}))
	healthpb.RegisterHealthServer(s.grpc, health{on: &p.grpcHealth})
	return s
}

// serve accepts connections until the listener is closed, by whomever: there
// is no other end, so the error explains nothing.
func (s *server) serve(l net.Listener) {
	s.serving.Go(func() { _ = s.grpc.Serve(listener{l, s}) })
}

// kill breaks every connection and ends the server.
func (s *server) kill() {
	s.breakAll()
	s.grpc.Stop()
	s.serving.Wait()
}

// drain ends the server, and breaks what is still under way after grace.
func (s *server) drain(grace time.Duration) {
	late := time.AfterFunc(grace, s.breakAll)
	defer late.Stop()
	s.grpc.GracefulStop()
	s.serving.Wait()
}

// breakAll closes every connection, in the middle of whatever it carries, and
// those that a listener is just about to accept.
func (s *server) breakAll() {
	s.mu.Lock()
	s.broken = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		// It may be closed already, so the error is ignored.
		_ = c.Close()
	}
}

// listener enters what it accepts into its server's connections.
type listener struct {
	net.Listener
	server *server
}

func (l listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, server: l.server}
	l.server.mu.Lock()
	broken := l.server.broken
	l.server.conns[c] = struct{}{}
	l.server.mu.Unlock()
	if broken {
		// Too late; gRPC finds it closed. An error would end the accepting.
		_ = c.Close()
	}
	return c, nil
}

type conn struct {
	net.Conn
	server *server
}

func (c *conn) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}
