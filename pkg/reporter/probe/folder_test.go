package probe

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/program"
)

// mountedAs gives a plugin a mountinfo in which root is mounted at folder.
func mountedAs(p *Plugin, folder, root string) {
	p.mounts = func() (string, error) {
		return "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 254:0 " + root + " " + folder + " ro - ext4 /dev/vda rw\n", nil
	}
}

const podVolume = "/var/lib/kubelet/pods/9f/volumes/kubernetes.io~empty-dir/kms-sockets"

// A folder that was deleted while mounted can still be opened: here through /proc, in a pod through its mount.
func TestDeletedFolder(t *testing.T) {
	for root, want := range map[string]string{
		podVolume + "//deleted": "",
		"/run/kms//deleted":     ": what is mounted was deleted on the host, and mounts of pods still show the deleted one: once the plugin runs, restart the API server if it is not ready, and then",
	} {
		folder := filepath.Join(t.TempDir(), "plugins")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		open, err := os.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = open.Close() })
		mount := fmt.Sprintf("/proc/self/fd/%d", open.Fd())
		plugin := probed(t, "unix://"+mount+"/kms.sock")
		if r := ask(t, plugin, writer(generous)); r.Gone || r.Status != contract.Error {
			t.Fatalf("an empty folder that is there: %+v", r)
		}
		mountedAs(plugin, mount, root)
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
		r := ask(t, plugin, writer(generous))
		if want == "" && (!r.Gone || r.Status != "" || r.At.IsZero()) {
			t.Errorf("a deleted folder of a pod: %+v", r)
		}
		if want != "" && (r.Gone || r.Reason != contract.ConnectFailed || !strings.Contains(r.Detail, want)) {
			t.Errorf("a deleted folder of the host: %+v", r)
		}
	}
}

// A link to a missing socket is watched like the missing socket itself.
func TestSocketThatCannotBeConnectedTo(t *testing.T) {
	link := filepath.Join(program.SocketDir(t), "kms.sock")
	if err := os.Symlink(link+".target", link); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(program.SocketDir(t), "kms.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	replaced := filepath.Join(program.SocketDir(t), "kms.sock")
	if listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: replaced}); err != nil {
		t.Fatal(err)
	}
	mounted, err := unix.Open(replaced, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(mounted) })
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
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

func TestMountinfoUnreadableForLackOfDescriptorsIsNotThePluginsError(t *testing.T) {
	plugin := probed(t, "unix://"+program.SocketDir(t)+"/kms.sock")
	plugin.mounts = func() (string, error) {
		return "", &os.PathError{Op: "open", Path: "/proc/self/mountinfo", Err: syscall.EMFILE}
	}
	if r := ask(t, plugin, writer(generous)); r.Status != "" || !strings.Contains(r.NotProbed, "too many open files") {
		t.Errorf("%+v", r)
	}
}
