// Package kmsplugin is a KMS v2 plugin for development and tests, which can be made unhealthy while it runs.
//
// It is a real plugin: kube-apiserver accepts it as a `kms` provider with `apiVersion: v2`. It encrypts with
// AES-256-GCM. Its keys survive a restart, and after a rotation the old keys still decrypt. Decrypt requires the
// key_id and the annotations of Encrypt's answer. A fault is a state: it is active for all callers, from the return of
// SetFault until it is cleared. It does not count calls, since kube-apiserver calls too, at unknown times. A call is
// counted even if a fault then delays or refuses it.
//
// It is not for production. It protects nothing: the keys are on disk in plain text, and everybody who
// can open the control socket can run every command.
package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
	"k8s.io/kms/pkg/util"
)

// FaultsFile is a file in the state directory, with one fault a line, in the format of ParseFault. These faults are
// active when a plugin starts, so that a fault survives the restart of a node.
const FaultsFile = "faults"

// Options are the options of a plugin.
type Options struct {
	// Endpoint is unix:///path. An old socket at the path is removed.
	Endpoint string
	// StateDir has the keys and FaultsFile. It is created if it is missing. Plugins with the same StateDir can
	// decrypt each other's data, as if they had one remote key.
	StateDir string
	// Control is the path of a socket for commands, see [Client]. Empty: no socket.
	Control string
	// Faults are active from the start.
	Faults []Fault
}

// Plugin is a running KMS v2 plugin. It is safe for concurrent use.
type Plugin struct {
	options Options
	socket  string
	keys    *keyring
	control *net.UnixListener
	ended   chan struct{} // closed by Close

	// change serialises changes of the faults, and guards the fields up to server.
	change   sync.Mutex
	closed   bool
	listener net.Listener // nil while it does not listen
	server   *grpc.Server // nil while crashed

	// mu guards the fields below. changed is closed and replaced at each change of the behaviour and at each call.
	mu          sync.Mutex
	changed     chan struct{}
	faults      []Fault
	behaviour   *behaviour
	calls       map[Call]CallStats
	connections ConnectionStats
	ends        int64
	ending      bool
}

// Start reads or creates the keys, listens, and serves. When it returns, a client can connect, unless a fault prevents
// it.
func Start(o Options) (*Plugin, error) {
	socket, err := util.ParseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	keys, err := openKeyring(o.StateDir)
	if err != nil {
		return nil, err
	}
	p := &Plugin{options: o, socket: socket, keys: keys, ended: make(chan struct{}), changed: make(chan struct{}),
		calls: map[Call]CallStats{}}
	content, err := os.ReadFile(filepath.Join(o.StateDir, FaultsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	faults := slices.Clone(o.Faults)
	for line := range strings.Lines(string(content)) {
		f, err := ParseFault(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", FaultsFile, err)
		}
		faults = append(faults, f)
	}
	err = p.become(func([]Fault) []Fault { return faults })
	if err == nil && o.Control != "" {
		err = p.serveControl(o.Control)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Endpoint returns the plugin's endpoint in the format of an EncryptionConfiguration.
func (p *Plugin) Endpoint() string { return "unix://" + p.socket }

// KeyID returns the ID of the key that encrypts. Faults do not change it.
func (p *Plugin) KeyID() string { return p.keys.current() }

// SetFault adds a fault, or replaces its arguments if it is active. It returns an error, and changes nothing, if the
// fault is not in [Faults] or its arguments are wrong.
func (p *Plugin) SetFault(f Fault) error {
	return p.become(func(before []Fault) []Fault { return append(without(before, f.Name), f) })
}

// ClearFaults ends these faults, or all if no name is given: a crashed plugin listens again, a removed socket is
// created again, a hanging call is answered. It is no error if a fault is not active.
func (p *Plugin) ClearFaults(names ...string) error {
	return p.become(func(before []Fault) []Fault {
		if len(names) == 0 {
			return nil
		}
		return without(before, names...)
	})
}

func without(faults []Fault, names ...string) []Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return slices.Contains(names, f.Name) })
}

// Crash closes all connections and stops listening. The socket's file remains, as after SIGKILL.
func (p *Plugin) Crash() error { return p.SetFault(Fault{Name: FaultCrash}) }

// Return ends a crash: the plugin listens again. The counters are not reset.
func (p *Plugin) Return() error { return p.ClearFaults(FaultCrash) }

// end simulates that the process ends at a call and is restarted: a crash, and after some time its end.
func (p *Plugin) end(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return
	}
	p.ending = true
	p.ends++
	go func() {
		_ = p.Crash()
		select {
		case <-p.ended:
			return
		case <-time.After(after):
		}
		p.mu.Lock()
		p.ending = false
		p.mu.Unlock()
		_ = p.Return()
	}()
}

// Rotate creates a new key, which encrypts from now on, and returns its ID.
func (p *Plugin) Rotate() (string, error) {
	p.change.Lock()
	defer p.change.Unlock()
	return p.keys.rotate()
}

// CallStats is how often and when a call was received.
type CallStats struct {
	Count  int64     `json:"count"`
	First  time.Time `json:"first,omitzero"`
	Latest time.Time `json:"latest,omitzero"`
}

// ConnectionStats counts connections.
type ConnectionStats struct {
	Accepted int64 `json:"accepted"`
	Open     int64 `json:"open"`
}

// State is the state of a running plugin.
type State struct {
	Endpoint    string             `json:"endpoint"`
	KeyID       string             `json:"keyID"`
	Faults      []Fault            `json:"faults"`
	Calls       map[Call]CallStats `json:"calls"`
	Connections ConnectionStats    `json:"connections"`
	Ends        int64              `json:"ends"` // how often FaultEndsAt ended the process
}

// State returns the plugin's state and counters.
func (p *Plugin) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{
		Endpoint: p.Endpoint(), KeyID: p.KeyID(), Faults: append([]Fault{}, p.faults...),
		Calls: maps.Clone(p.calls), Connections: p.connections, Ends: p.ends,
	}
}

// Calls returns how often a call was received.
func (p *Plugin) Calls(call Call) CallStats { return p.State().Calls[call] }

// WaitForCalls waits until a call was received n times in total. It returns an error if ctx ends earlier.
func (p *Plugin) WaitForCalls(ctx context.Context, call Call, n int64) error {
	for {
		p.mu.Lock()
		count, changed := p.calls[call].Count, p.changed
		p.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d %s calls, got %d: %w", n, call, count, ctx.Err())
		}
	}
}

// ResetCounters resets all counters except the number of open connections.
func (p *Plugin) ResetCounters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls, p.connections.Accepted, p.ends = map[Call]CallStats{}, 0, 0
}

// record counts a call.
func (p *Plugin) record(call Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls[call]
	calls.Count, calls.Latest = calls.Count+1, time.Now()
	if calls.Count == 1 {
		calls.First = calls.Latest
	}
	p.calls[call] = calls
	p.wake()
}

func (p *Plugin) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Close ends all calls and all goroutines, and removes the socket. It may be called again.
func (p *Plugin) Close() error {
	p.change.Lock()
	defer p.change.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	close(p.ended)
	if p.control != nil {
		_ = p.control.Close()
	}
	return p.reconcile(&behaviour{on: map[string]bool{FaultCrash: true, FaultRemoveSocket: true}})
}

// become replaces the active faults. It changes the answers before it opens the socket: a client that connects after
// a crash must not get the old faults.
func (p *Plugin) become(change func(before []Fault) []Fault) error {
	p.change.Lock()
	defer p.change.Unlock()
	if p.closed {
		return errors.New("the plugin is closed")
	}
	faults := change(p.faults) // without p.mu: only become writes p.faults, under p.change
	b, err := compile(faults)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.faults, p.behaviour = faults, b
	p.wake()
	p.mu.Unlock()
	return p.reconcile(b)
}

// reconcile makes the socket and the server match b.
func (p *Plugin) reconcile(b *behaviour) error {
	if b.on[FaultRemoveSocket] || b.on[FaultCrash] {
		p.stopListening(b.on[FaultRemoveSocket])
	}
	if b.on[FaultCrash] {
		if p.server != nil {
			p.server.Stop()
			p.server = nil
		}
		return nil
	}
	if p.server == nil {
		p.server = p.newServer()
	}
	if b.on[FaultRemoveSocket] || p.listener != nil {
		return nil
	}
	l, err := listen(p.socket)
	if err != nil {
		return err
	}
	p.listener = l
	go func(server *grpc.Server) { _ = server.Serve(l) }(p.server) // until the listener is closed
	return nil
}

// newServer returns a new gRPC server. A stopped one cannot serve again.
func (p *Plugin) newServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(p.intercept),
		grpc.StatsHandler(connections{p}),
		// Crash and Close wait for all handlers, and at most this long for a handshake.
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(5*time.Second),
	)
	// Neither the address nor the timeout is used, since listen opens the socket.
	kmsapi.RegisterKeyManagementServiceServer(server, service.NewGRPCService("", 0, crypt{p.keys}))
	healthpb.RegisterHealthServer(server, healthpb.UnimplementedHealthServer{}) // its calls are counted and delayed too
	return server
}

// listen opens a socket, and replaces one that a crash left. The file remains when the listener is closed, as after a
// crash of the process.
func listen(socket string) (*net.UnixListener, error) {
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(socket) // if this fails, ListenUnix returns the error
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// stopListening closes the listener. Open connections remain open. The socket's file remains unless remove is set.
func (p *Plugin) stopListening(remove bool) {
	if p.listener == nil {
		return
	}
	if remove {
		_ = os.Remove(p.socket)
	}
	_ = p.listener.Close()
	p.listener = nil
}
