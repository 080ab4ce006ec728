package probe

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// goAway answers each connection to a socket with the frames SETTINGS and GOAWAY of HTTP/2
// (RFC 9113), and counts them.
func goAway(t *testing.T, socket string) (stop func(), accepted *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go func() {
				_, _ = io.WriteString(conn, "\x00\x00\x00\x04\x00\x00\x00\x00\x00"+
					"\x00\x00\x08\x07\x00\x00\x00\x00\x00"+"\x00\x00\x00\x00\x00\x00\x00\x00")
				_, _ = io.Copy(io.Discard, conn) // until the client closes it
				_ = conn.Close()
			}()
		}
	}()
	stop = func() { _ = listener.Close() }
	t.Cleanup(stop)
	return stop, accepted
}

// Without a bound gRPC connects again thousands of times a second, until the call ends.
func TestPluginThatEndsEachConnectionCausesFewOfThem(t *testing.T) {
	socket := program.SocketDir(t) + "/kms.sock"
	stop, accepted := goAway(t, socket)
	plugin := probed(t, "unix://"+socket)
	for range 3 {
		before, began := accepted.Load(), time.Now()
		r := ask(t, plugin, Settings{Timeout: 3 * time.Second})
		n := accepted.Load() - before
		t.Logf("%d connections in %s", n, time.Since(began))
		if r.Status != contract.Error || r.Reason != contract.Unavailable || n > 2*maxDials {
			t.Errorf("%d connections for one probe: %+v", n, r)
		}
	}

	// A working plugin in its place is found by the next probe.
	stop()
	_ = os.Remove(socket)
	real, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + socket, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = real.Close() })
	if r := check(t, plugin, writer(generous)); r.Status != contract.Healthy {
		t.Errorf("%+v", r)
	}
}
