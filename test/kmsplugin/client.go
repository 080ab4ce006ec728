package kmsplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Client gives commands to a plugin in another process.
type Client struct {
	socket socket
}

// NewClient returns a client for the control socket at path, or "@name". It
// does not connect yet.
func NewClient(path string) (*Client, error) {
	socket, err := parseControlPath(path)
	if err != nil {
		return nil, err
	}
	return &Client{socket: socket}, nil
}

// Do runs a command, see [Plugin.Do], and returns the state after it. When it
// returns the command is active.
func (c *Client) Do(ctx context.Context, name string, args ...string) (State, error) {
	body, err := json.Marshal(order{Name: name, Args: args})
	if err != nil {
		return State{}, err
	}
	return c.send(ctx, http.MethodPost, commandPath, body)
}

// State returns the state of the plugin.
func (c *Client) State(ctx context.Context) (State, error) {
	return c.send(ctx, http.MethodGet, statusPath, nil)
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (_ State, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	// The host is never looked up; HTTP wants one.
	req, err := http.NewRequestWithContext(ctx, method, "http://kms-plugin"+path, bytes.NewReader(body))
	if err != nil {
		return State{}, err
	}
	// One connection per command: nothing to close, nothing to go stale.
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", string(c.socket))
		},
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return State{}, fmt.Errorf("control socket: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		var refused refusal
		if err := json.NewDecoder(resp.Body).Decode(&refused); err != nil || refused.Error == "" {
			return State{}, fmt.Errorf("control socket: %s", resp.Status)
		}
		return State{}, errors.New(refused.Error)
	}
	var state State
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		return State{}, fmt.Errorf("control socket: reading the state: %w", err)
	}
	return state, nil
}
