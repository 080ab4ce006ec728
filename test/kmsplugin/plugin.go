package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// drainTime is what Close grants the calls under way.
const drainTime = 500 * time.Millisecond

// Options are what a plugin is when it starts.
type Options struct {
	// Endpoint is unix:///path or unix:///@name, or the bare path or @name.
	// A socket file that a crash left there is removed.
	Endpoint string
	// StateDir holds the keys. It is made if it is missing. Plugins that share
	// it can decrypt each other's data, as if they had one remote key. A file
	// FaultsFile in it has more Faults.
	StateDir string
	// GRPCHealth turns grpc.health.v1 on. Most plugins have none.
	GRPCHealth bool
	// Faults are active before the first call is answered.
	Faults []Fault
	// Log gets the changes. Nil: nothing is logged.
	Log *slog.Logger
}

// Plugin is a running KMS v2 plugin. Its methods may be called at any time
// from any goroutine.
type Plugin struct {
	socket     socket
	keys       *keyring
	counters   *counters
	conduct    *conduct
	grpcHealth atomic.Bool
	log        *slog.Logger

	// mu guards what follows, and makes changes of faults one after another.
	mu       sync.Mutex
	closed   bool
	faults   []Fault
	listener *net.UnixListener // nil while it does not listen
	server   *server           // nil while crashed
}

// Start reads or makes the keys, listens, and serves. When it returns a
// client can connect, unless a fault in the options forbids it.
func Start(o Options) (*Plugin, error) {
	socket, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	if o.StateDir == "" {
		return nil, errors.New("no state directory given")
	}
	keys, err := openKeyring(o.StateDir)
	if err != nil {
		return nil, err
	}
	p := &Plugin{socket: socket, keys: keys, counters: newCounters(), conduct: newConduct(), log: o.Log}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.grpcHealth.Store(o.GRPCHealth)
	p.mu.Lock()
	defer p.mu.Unlock()
	faults, err := readFaults(o.StateDir)
	if err != nil {
		return nil, err
	}
	if err := p.become(slices.Concat(o.Faults, faults)); err != nil {
		return nil, err
	}
	return p, nil
}

// Endpoint returns where the plugin listens, as an EncryptionConfiguration
// wants it.
func (p *Plugin) Endpoint() string { return p.socket.endpoint() }

// KeyID returns the ID of the key that encrypts, whatever faults answer.
func (p *Plugin) KeyID() string { return p.keys.current() }

// SetFault adds a fault to those active, or sets it anew with other
// arguments. It fails, and changes nothing, if the fault is not in the table,
// its arguments are wrong, or the socket cannot be had.
func (p *Plugin) SetFault(f Fault) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind, err := faultKind(f.Name); err == nil {
		f.Args = kind.join(f.Args)
	}
	if err := p.become(append(without(p.faults, f.Name), f)); err != nil {
		return err
	}
	p.log.Info("Fault set", "fault", f.String())
	return nil
}

// ClearFault ends one fault. That it was not active is no error.
func (p *Plugin) ClearFault(name string) error {
	if _, err := faultKind(name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.become(without(p.faults, name)); err != nil {
		return err
	}
	p.log.Info("Fault cleared", "fault", name)
	return nil
}

// ClearFaults ends all faults: a crashed plugin returns, a removed socket is
// restored, what hangs is answered.
func (p *Plugin) ClearFaults() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.become(nil); err != nil {
		return err
	}
	p.log.Info("All faults cleared")
	return nil
}

// Crash breaks all connections and stops listening. The socket's file stays
// behind, as after a kill.
func (p *Plugin) Crash() error { return p.SetFault(Fault{Name: FaultCrash}) }

// Return ends a crash: the plugin listens again. Its counters go on.
func (p *Plugin) Return() error { return p.ClearFault(FaultCrash) }

// RestoreSocket restores the socket.
func (p *Plugin) RestoreSocket() error { return p.ClearFault(FaultRemoveSocket) }

// Rotate makes a new key, which encrypts from now on, and returns its ID.
func (p *Plugin) Rotate() (string, error) {
	id, err := p.keys.rotate()
	if err == nil {
		p.log.Info("Key rotated", "keyID", id)
	}
	return id, err
}

// Reload takes up the keys as they lie on disk: how a plugin hears that
// another one, which shares the directory, has rotated.
func (p *Plugin) Reload() error {
	err := p.keys.reload()
	if err == nil {
		p.log.Info("Keys reloaded", "keyID", p.keys.current())
	}
	return err
}

// SetGRPCHealth turns grpc.health.v1 on or off. While off, it answers
// Unimplemented.
func (p *Plugin) SetGRPCHealth(on bool) {
	p.grpcHealth.Store(on)
	p.log.Info("gRPC health set", "on", on)
}

// Calls returns how often a call was received.
func (p *Plugin) Calls(call Call) CallStats {
	calls, _ := p.counters.snapshot()
	return calls[call]
}

// WaitForCalls returns when a call was received n times in all, and an error
// when ctx ends before.
func (p *Plugin) WaitForCalls(ctx context.Context, call Call, n int64) error {
	return p.counters.wait(ctx, call, n)
}

// ResetCounters sets all counters back to zero; open connections stay counted.
func (p *Plugin) ResetCounters() { p.counters.reset() }

// State is all there is to know of a running plugin.
type State struct {
	Endpoint string `json:"endpoint"`
	PID      int    `json:"pid"`
	// Listening reports that a client can connect.
	Listening   bool               `json:"listening"`
	KeyID       string             `json:"keyID"`
	Keys        int                `json:"keys"`
	GRPCHealth  bool               `json:"grpcHealth"`
	Faults      []Fault            `json:"faults"`
	Calls       map[Call]CallStats `json:"calls"`
	Connections ConnectionStats    `json:"connections"`
}

// State returns what the plugin is and what it has received.
func (p *Plugin) State() State {
	calls, connections := p.counters.snapshot()
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{
		Endpoint:    p.Endpoint(),
		PID:         os.Getpid(),
		Listening:   p.listener != nil,
		KeyID:       p.keys.current(),
		Keys:        p.keys.size(),
		GRPCHealth:  p.grpcHealth.Load(),
		Faults:      append([]Fault{}, p.faults...),
		Calls:       calls,
		Connections: connections,
	}
}

// Close stops serving, gives the calls under way half a second, removes the
// socket and ends every goroutine. To call it again does nothing.
func (p *Plugin) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var unlinked error
	if p.listener != nil {
		unlinked = p.socket.unlink()
	} else {
		// The remainder of a crash. The socket may now be another process's, which
		// is not removed, and not an error.
		_ = p.socket.removeStale()
	}
	p.closeListener()
	if p.server != nil {
		p.server.drain(drainTime)
		p.server = nil
	}
	return unlinked
}

// become puts faults into force in place of those before. The caller holds mu.
func (p *Plugin) become(faults []Fault) error {
	if p.closed {
		return errors.New("the plugin is closed")
	}
	b, err := compile(faults)
	if err != nil {
		return err
	}
	// The answers change before the socket opens: who connects to a plugin
	// that returns must not meet the faults of before.
	before := p.conduct.set(b)
	if err := p.reconcile(b); err != nil {
		p.conduct.set(before)
		return fmt.Errorf("socket of the plugin: %w", err)
	}
	p.faults = faults
	return nil
}

// reconcile brings the socket and the server into the state of b. The caller
// holds mu.
func (p *Plugin) reconcile(b *behaviour) error {
	switch {
	case b.noSocket && p.listener != nil:
		if err := p.socket.unlink(); err != nil {
			return err
		}
		p.closeListener()
	case b.noSocket:
		// Of a crash, a file may be left; what else is there is not ours.
		_ = p.socket.removeStale()
	}
	if b.crashed {
		p.closeListener()
		if p.server != nil {
			p.server.kill()
			p.server = nil
		}
		return nil
	}
	if p.server == nil {
		p.server = p.newServer()
	}
	if b.noSocket || p.listener != nil {
		return nil
	}
	var err error
	if p.listener, err = p.socket.listen(); err != nil {
		return err
	}
	p.server.serve(p.listener)
	return nil
}

// closeListener ends listening. Connections that are open stay so, and the
// socket's file too. The caller holds mu.
func (p *Plugin) closeListener() {
	if p.listener != nil {
		// It fails only for one that is closed, and none is, here.
		_ = p.listener.Close()
		p.listener = nil
	}
}
