package kmsplugin

import (
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
  rotate            make a new key, which encrypts from now on; old ones still decrypt
  refresh           use the key that another plugin with the same state directory made by rotate
  reset-counters    reset the counters of calls

Faults, active until healed; several may be:
`

// Do runs a command or sets a fault, see [Help].
func (p *Plugin) Do(name string, args ...string) (err error) {
	switch name {
	case "status":
	case "heal":
		err = p.ClearFaults(args...)
	case "rotate":
		_, err = p.Rotate()
	case "refresh":
		p.keys.refresh()
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
	for _, kind := range Faults {
		fmt.Fprintf(&text, "  %-16s %-17s %s\n", kind.Name, kind.Usage, kind.What)
	}
	return text.String()
}

// remote has the procedures of the control socket.
type remote struct{ plugin *Plugin }

// Do calls Plugin.Do with a name and its arguments, and returns the state after it.
func (r remote) Do(command []string, state *State) error {
	err := r.plugin.Do(command[0], command[1:]...)
	*state = r.plugin.State()
	return err
}

// serveControl serves commands by Go's net/rpc on a unix socket at path, until the plugin is closed. Only the user
// that runs the plugin can open the socket.
func (p *Plugin) serveControl(path string) (err error) {
	if p.control, err = listen(path); err != nil {
		return err
	}
	p.control.SetUnlinkOnClose(true)
	server := rpc.NewServer()
	if err := server.RegisterName("Plugin", remote{p}); err != nil {
		return err
	}
	go func() {
		for conn, err := p.control.Accept(); err == nil; conn, err = p.control.Accept() {
			go server.ServeConn(conn)
		}
	}()
	return os.Chmod(path, 0o600)
}

// Client sends commands to a plugin in another process. Its value is the path of the control socket.
type Client string

// State returns the state of the plugin.
func (c Client) State() (State, error) { return c.Do("status") }

// Do runs a command, see [Plugin.Do], and returns the state after it.
func (c Client) Do(name string, args ...string) (state State, err error) {
	conn, err := net.DialTimeout("unix", string(c), controlTimeout)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(controlTimeout))
	}
	if err != nil {
		return State{}, fmt.Errorf("control socket: %w", err)
	}
	client := rpc.NewClient(conn)
	defer client.Close()
	err = client.Call("Plugin.Do", append([]string{name}, args...), &state)
	return state, err
}
