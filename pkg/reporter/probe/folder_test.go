package probe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

// A folder that was deleted while mounted can still be opened: here through /proc, in a pod through its mount.
func TestDeletedFolder(t *testing.T) {
	const podVolume = "/var/lib/kubelet/pods/9f/volumes/kubernetes.io~empty-dir/kms-sockets"
	for name, tt := range map[string]struct {
		root       string // of the mount
		unreadable error  // the mountinfo
		want       Result // texts: parts of them
	}{
		"of a pod": {podVolume + "//deleted", nil, Result{Gone: true, Detail: "with the pod that it belonged to"}},
		"of the host": {"/run/kms//deleted", nil, Result{Status: contract.Error, Reason: contract.ConnectFailed,
			Detail: ": what is mounted was deleted on the host, and mounts of pods still show the deleted one: once the plugin runs, restart the API server if it is not ready, and then"}},
		"without descriptors for the mountinfo": {"", syscall.EMFILE, Result{NotProbed: "too many open files"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "plugins")
			must.Succeed(t, os.Mkdir(folder, 0o755))
			open, err := os.Open(folder)
			must.Succeed(t, err)
			t.Cleanup(func() { _ = open.Close() })
			mount := fmt.Sprintf("/proc/self/fd/%d", open.Fd())
			plugin := probed(t, "unix://"+mount+"/kms.sock")
			plugin.mounts = func() (string, error) {
				return "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 254:0 " + tt.root + " " + mount + " ro - ext4 /dev/vda rw\n", tt.unreadable
			}
			if r := ask(t, plugin, writer(generous)); r.Reason != contract.SocketMissing {
				t.Fatalf("an empty folder that is there: %+v", r)
			}
			must.Succeed(t, os.Remove(folder))
			got := ask(t, plugin, writer(generous))
			if got.Gone != tt.want.Gone || got.Status != tt.want.Status || got.Reason != tt.want.Reason || got.At.IsZero() ||
				!strings.Contains(got.Detail, tt.want.Detail) || !strings.Contains(got.NotProbed, tt.want.NotProbed) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A link to a missing socket is watched like the missing socket itself.
func TestSocketThatCannotBeConnectedTo(t *testing.T) {
	listen := func() (socket string, listener *net.UnixListener) {
		socket = filepath.Join(program.SocketDir(t), "kms.sock")
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
		must.Succeed(t, err)
		return socket, listener
	}
	link := filepath.Join(program.SocketDir(t), "kms.sock")
	stale, killed := listen()
	killed.SetUnlinkOnClose(false)
	replaced, ended := listen()
	mounted, err := unix.Open(replaced, unix.O_PATH|unix.O_CLOEXEC, 0)
	must.Succeed(t, errors.Join(err, os.Symlink(link+".target", link), killed.Close(), ended.Close()))
	t.Cleanup(func() { _ = unix.Close(mounted) })
	for name, tt := range map[string]struct {
		endpoint, detail string
		reason           contract.Reason
	}{
		"a dangling link":    {"unix://" + link, ": it is a link to a file that does not exist", contract.SocketMissing},
		"an abstract socket": {"unix:///@kms-health-test-nothing-listens", ": nothing listens on it", contract.ConnectFailed},
		"a file that was left behind": {
			"unix://" + stale, `remove it if the plugin's log has "address already in use")`, contract.ConnectFailed,
		},
		"a socket that is itself mounted, and was deleted": {
			fmt.Sprintf("unix:///proc/self/fd/%d", mounted), "and then delete the reporter's pod", contract.ConnectFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := probed(t, tt.endpoint)
			r := ask(t, plugin, writer(generous))
			if r.Status != contract.Error || r.Reason != tt.reason || !strings.HasSuffix(r.Detail, tt.detail) {
				t.Errorf("%+v", r)
			}
		})
	}
}
