package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"strings"
	"time"
)

// controlTimeout bounds one command.
const controlTimeout = 10 * time.Second

const commands = `Commands:
  status            show the state, the faults and the counters as JSON
  heal [FAULT...]   end faults, or all
  return            end the crash: listen again
  restore-socket    restore the removed socket
  rotate            make a new key, which encrypts from now on; old ones still decrypt
  reset-counters    reset the counters of calls

Faults, active until healed; several may be:
`

// Do runs a command by its name, as the control socket does: one of those
// that [Help] lists, or a fault to set.
func (p *Plugin) Do(name string, args ...string) (err error) {
	switch name {
	case "status":
	case "heal":
		err = p.ClearFaults(args...)
	case "return":
		err = p.Return()
	case "restore-socket":
		err = p.ClearFaults(FaultRemoveSocket)
	case "rotate":
		_, err = p.Rotate()
	case "reset-counters":
		p.ResetCounters()
	default:
		err = p.SetFault(Fault{Name: name, Args: args})
	}
	return err
}

// Help returns every command and every fault, one a line.
func Help() string {
	var text strings.Builder
	text.WriteString(commands)
	for _, kind := range Faults() {
		fmt.Fprintf(&text, "  %-16s %-17s %s\n", kind.Name, kind.Usage, kind.What)
	}
	return text.String()
}

// Order is a command as it crosses the control socket.
type Order struct {
	Name string
	Args []string
}

// remote are the procedures of the control socket.
type remote struct{ plugin *Plugin }

// Do is Plugin.Do, and returns the state after it.
func (r remote) Do(o Order, state *State) error {
	err := r.plugin.Do(o.Name, o.Args...)
	*state = r.plugin.State()
	return err
}

// serveControl takes commands on a unix socket at path until the plugin closes, by Go's net/rpc. Only the
// user that runs the plugin can open it.
func (p *Plugin) serveControl(path string) (err error) {
	if p.control, err = listen(path); err != nil {
		return err
	}
	p.control.SetUnlinkOnClose(true)
	server := rpc.NewServer()
	if err := errors.Join(os.Chmod(path, 0o600), server.RegisterName("Plugin", remote{p})); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := p.control.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()
	return nil
}

// Client gives commands to a plugin in another process.
type Client struct{ path string }

// NewClient returns a client for the control socket at path. It does not connect yet.
func NewClient(path string) (*Client, error) {
	if path == "" {
		return nil, errors.New("no control socket given")
	}
	return &Client{path}, nil
}

// State returns the state of the plugin.
func (c *Client) State(ctx context.Context) (State, error) { return c.Do(ctx, "status") }

// Do runs a command, see [Plugin.Do], and returns the state after it. When it
// returns the command is active.
func (c *Client) Do(ctx context.Context, name string, args ...string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.path)
	if err != nil {
		return State{}, fmt.Errorf("control socket: %w", err)
	}
	var state State
	client := rpc.NewClient(conn)
	defer client.Close()
	select {
	case call := <-client.Go("Plugin.Do", Order{name, args}, &state, make(chan *rpc.Call, 1)).Done:
		return state, call.Error
	case <-ctx.Done():
		return State{}, fmt.Errorf("control socket: %w", ctx.Err())
	}
}
