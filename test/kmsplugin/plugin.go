// Package kmsplugin is a KMS v2 plugin for development and tests, which can be
// made unhealthy while it runs.
//
// It is a real plugin: kube-apiserver accepts it as a `kms` provider with `apiVersion: v2`. It
// encrypts with AES-256-GCM, its keys survive a restart, after a rotation the old keys still
// decrypt, and Decrypt demands the key_id and the annotations that Encrypt answered with. Faults
// are states, not scripts: one holds from the return of SetFault until it is cleared, for every
// caller alike, since kube-apiserver calls too, at unknown times. Calls are counted before any fault
// holds or refuses them.
//
// It protects nothing: the keys are on disk in plain text, and whoever may open the control socket
// may do all. It is not for production.
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

// FaultsFile is a file in the state directory, with a fault in each line, as ParseFault
// reads it. They are active when a plugin starts: so a fault survives the restart of a
// node.
const FaultsFile = "faults"

// Options are what a plugin is when it starts.
type Options struct {
	// Endpoint is unix:///path. A socket file that a crash left there is removed.
	Endpoint string
	// StateDir holds the keys, and FaultsFile. It is made if it is missing. Plugins that
	// share it can decrypt each other's data, as if they had one remote key.
	StateDir string
	// Control is the path of a socket that takes commands, see [NewClient]. Empty: none.
	Control string
	// Faults are active before the first call is answered.
	Faults []Fault
}

// Plugin is a running KMS v2 plugin. Its methods may be called at any time
// from any goroutine.
type Plugin struct {
	options Options
	socket  string
	keys    *keyring
	control *net.UnixListener
	ended   chan struct{} // closed by Close

	// change makes changes of faults one after another, and guards what only they touch.
	change   sync.Mutex
	closed   bool
	listener net.Listener // nil while it does not listen
	server   *grpc.Server // nil while crashed

	// mu guards what follows. changed is closed, and replaced, with each change of the
	// behaviour and each call.
	mu          sync.Mutex
	changed     chan struct{}
	faults      []Fault
	behaviour   *behaviour
	calls       map[Call]CallStats
	connections ConnectionStats
	ends        int64
	ending      bool
}

// Start reads or makes the keys, listens, and serves. When it returns a
// client can connect, unless a fault in the options forbids it.
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

// Endpoint returns where the plugin listens, as an EncryptionConfiguration has it.
func (p *Plugin) Endpoint() string { return "unix://" + p.socket }

// KeyID returns the ID of the key that encrypts, whatever faults answer.
func (p *Plugin) KeyID() string { return p.keys.current() }

// SetFault adds a fault to those active, or sets it anew with other arguments. It fails, and changes
// nothing, if the fault is not in the table, or its arguments are wrong.
func (p *Plugin) SetFault(f Fault) error {
	return p.become(func(before []Fault) []Fault { return append(without(before, f.Name), f) })
}

// ClearFaults ends faults, all if none is named: a crashed plugin returns, a removed socket
// is restored, what hangs is answered. That one was not active is no error.
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

// Crash breaks all connections and stops listening. The socket's file stays
// behind, as after a kill.
func (p *Plugin) Crash() error { return p.SetFault(Fault{Name: FaultCrash}) }

// Return ends a crash: the plugin listens again. Its counters go on.
func (p *Plugin) Return() error { return p.ClearFaults(FaultCrash) }

// end is the end of the process at a call, and its restart: a crash for some time.
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

// Rotate makes a new key, which encrypts from now on, and returns its ID.
func (p *Plugin) Rotate() (string, error) {
	p.change.Lock()
	defer p.change.Unlock()
	return p.keys.rotate()
}

// CallStats is how often a call was received.
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

// State is all there is to know of a running plugin.
type State struct {
	Endpoint    string             `json:"endpoint"`
	KeyID       string             `json:"keyID"`
	Faults      []Fault            `json:"faults"`
	Calls       map[Call]CallStats `json:"calls"`
	Connections ConnectionStats    `json:"connections"`
	Ends        int64              `json:"ends"` // of the process, by its fault
}

// State returns what the plugin is and what it has received.
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

// WaitForCalls returns when a call was received n times in all, and an error when ctx ends before.
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

// ResetCounters resets all but the number of open connections, which is a state.
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

// Close ends all calls and every goroutine, and removes the socket. To call it again does nothing.
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

// become replaces the active faults. The answers change before the socket opens: who connects to a
// plugin that returns must not meet the faults of before.
func (p *Plugin) become(change func(before []Fault) []Fault) error {
	p.change.Lock()
	defer p.change.Unlock()
	if p.closed {
		return errors.New("the plugin is closed")
	}
	faults := change(p.faults) // written under change alone
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

// reconcile brings the socket and the server into the state of b.
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

// newServer returns a gRPC server, which cannot be used again after a crash.
func (p *Plugin) newServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(p.intercept),
		grpc.StatsHandler(connections{p}),
		// A crash and Close leave no handler behind, and wait this long for a handshake.
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(5*time.Second),
	)
	// Neither address nor timeout is used: we listen ourselves.
	kmsapi.RegisterKeyManagementServiceServer(server, service.NewGRPCService("", 0, crypt{p.keys}))
	healthpb.RegisterHealthServer(server, healthpb.UnimplementedHealthServer{}) // counted, and held, too
	return server
}

// listen opens a socket, in the place of one that a crash left. The file stays
// when the listener is closed, like after a crash of the process.
func listen(socket string) (*net.UnixListener, error) {
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(socket) // listening reports what is in the way
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// stopListening ends listening. Connections that are open stay so, and the socket's file too, unless it is
// to be removed.
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
