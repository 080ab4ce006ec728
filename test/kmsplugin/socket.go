package kmsplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kms/pkg/util"
)

// maxSocketName is what fits into sockaddr_un on Linux, less the final zero.
const maxSocketName = 107

// socket is where a plugin listens: an absolute path, or an abstract "@name".
type socket string

// parseEndpoint reads an endpoint as an EncryptionConfiguration writes it
// (unix:///path, unix:///@name), and also the bare path or "@name".
func parseEndpoint(endpoint string) (socket, error) {
	name := endpoint
	if !strings.HasPrefix(endpoint, "/") && !strings.HasPrefix(endpoint, "@") {
		var err error
		if name, err = util.ParseEndpoint(endpoint); err != nil {
			return "", err
		}
	}
	s := socket(name)
	switch {
	case s.abstract() && len(s) == 1,
		!s.abstract() && (!filepath.IsAbs(name) || filepath.Clean(name) == "/"):
		return "", fmt.Errorf("invalid endpoint %q: want unix:///path or unix:///@name", endpoint)
	case len(s) > maxSocketName:
		return "", fmt.Errorf("invalid endpoint %q: the name of a unix socket has at most %d bytes, not %d", endpoint, maxSocketName, len(s))
	}
	return s, nil
}

// parseControlPath reads where a control socket is. A plugin's endpoint must
// be absolute, since another process opens it by the same string; a path that
// one types may be relative.
func parseControlPath(path string) (s socket, err error) {
	if path != "" && !strings.HasPrefix(path, "@") && !strings.HasPrefix(path, "unix:") {
		if path, err = filepath.Abs(path); err != nil {
			return "", fmt.Errorf("control socket: %w", err)
		}
	}
	if s, err = parseEndpoint(path); err != nil {
		return "", fmt.Errorf("control socket: %w", err)
	}
	return s, nil
}

func (s socket) abstract() bool { return strings.HasPrefix(string(s), "@") }

// endpoint returns the form used in an EncryptionConfiguration.
func (s socket) endpoint() string {
	if s.abstract() {
		return "unix:///" + string(s)
	}
	return "unix://" + string(s)
}

// listen opens the socket, after removing what a crash left in its place. The
// file stays when the listener is closed, like after a crash of the process; see
// unlink.
func (s socket) listen() (*net.UnixListener, error) {
	if err := s.removeStale(); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: string(s), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// removeStale removes a socket file without a listener. It does not remove
// the socket of a living process, and whatever is no socket.
func (s socket) removeStale() error {
	if s.abstract() {
		return nil
	}
	info, err := os.Lstat(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the way: it is not a socket", s)
	}
	conn, err := net.DialTimeout("unix", string(s), time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%s is in use: a process listens on it", s)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%s is in the way: %w", s, err)
	}
	return s.unlink()
}

// unlink removes the socket file. A missing file is not an error.
func (s socket) unlink() error {
	if s.abstract() {
		return nil
	}
	if err := os.Remove(string(s)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
