package kmsplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

const (
	statusPath  = "/status"
	commandPath = "/command"
	// maxCommand bounds a command's JSON.
	maxCommand = 1 << 20
	// controlTimeout bounds one command, at both ends.
	controlTimeout = 10 * time.Second
)

// order is a command as it crosses the control socket.
type order struct {
	Name string   `json:"name"`
	Args []string `json:"args,omitempty"`
}

// refusal is the answer to an order that could not be carried out.
type refusal struct {
	Error string `json:"error"`
}

// Control takes commands for a plugin over a unix socket of its own, in HTTP:
// GET /status, and POST /command with {"name": "unhealthy", "args": ["sealed"]}.
// Both answer with the [State] in JSON, or with {"error": "..."}.
type Control struct {
	socket socket
	server *http.Server
	done   chan struct{}
}

// ServeControl takes commands for p on a socket at path, or "@name", until
// Close. A path can be opened only by the user that runs the plugin; an
// abstract socket knows no permissions.
func ServeControl(p *Plugin, path string) (*Control, error) {
	socket, err := parseControlPath(path)
	if err != nil {
		return nil, err
	}
	listener, err := socket.listen()
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if !socket.abstract() {
		if err := os.Chmod(string(socket), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("control socket: %w", err), listener.Close(), socket.unlink())
		}
	}
	c := &Control{
		socket: socket,
		server: &http.Server{Handler: controlHandler(p), ReadTimeout: controlTimeout, IdleTimeout: controlTimeout},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(c.done)
		// It ends when Close closes the listener, and only then.
		_ = c.server.Serve(listener)
	}()
	return c, nil
}

// Close takes no more commands, gives those under way half a second, and
// removes the socket.
func (c *Control) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	unlinked := c.socket.unlink()
	if c.server.Shutdown(ctx) != nil {
		_ = c.server.Close()
	}
	<-c.done
	return unlinked
}

func controlHandler(p *Plugin) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, p.State())
	})
	mux.HandleFunc("POST "+commandPath, func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&o); err != nil {
			reply(w, http.StatusBadRequest, refusal{fmt.Sprintf("reading the command: %v", err)})
			return
		}
		if err := p.Do(o.Name, o.Args...); err != nil {
			reply(w, http.StatusBadRequest, refusal{err.Error()})
			return
		}
		reply(w, http.StatusOK, p.State())
	})
	return mux
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that has disconnected does not get the error either.
	_ = json.NewEncoder(w).Encode(body)
}
