package kmsplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	// maxCommand bounds a command's JSON.
	maxCommand = 1 << 20
	// controlTimeout bounds one command, at both ends.
	controlTimeout = 10 * time.Second
)

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

// order is a command as it crosses the control socket.
type order struct {
	Name string   `json:"name"`
	Args []string `json:"args,omitempty"`
}

// answer is the state after a command, or why it could not be carried out.
type answer struct {
	State
	Error string `json:"error,omitempty"`
}

// Control takes commands for a plugin over a unix socket of its own, in HTTP:
// POST /command with {"name": "unhealthy", "args": ["sealed"]}. The answer is the [State] in
// JSON, or an error.
type Control struct{ *http.Server }

// ServeControl takes commands for p on a socket at path until Close. Only the user that runs
// the plugin can open it.
func ServeControl(p *Plugin, path string) (*Control, error) {
	listener, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /command", func(w http.ResponseWriter, r *http.Request) {
		var o order
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&o)
		if err == nil {
			err = p.Do(o.Name, o.Args...)
		}
		a := answer{State: p.State()}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			a.Error = err.Error()
		}
		_ = json.NewEncoder(w).Encode(a) // a client that has disconnected does not get an error either
	})
	c := &Control{&http.Server{Handler: mux, ReadTimeout: controlTimeout, IdleTimeout: controlTimeout}}
	listener.SetUnlinkOnClose(true)
	go func() { _ = c.Serve(listener) }() // until Close
	return c, nil
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
	body, err := json.Marshal(order{Name: name, Args: args})
	if err != nil {
		return State{}, err
	}
	// The host is never looked up; HTTP wants one.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kms-plugin/command", bytes.NewReader(body))
	if err != nil {
		return State{}, err
	}
	// One connection per command: nothing to close, nothing to go stale.
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.path)
		},
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return State{}, fmt.Errorf("control socket: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return State{}, fmt.Errorf("control socket: %s: %w", resp.Status, err)
	}
	if a.Error != "" {
		return State{}, errors.New(a.Error)
	}
	return a.State, nil
}
