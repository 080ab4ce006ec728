package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// childCapabilities makes the test binary a process that has only these capabilities, and connects to the socket of
// childOf.
const (
	childCapabilities = "PROBE_TEST_CAPABILITIES"
	childOf           = "PROBE_TEST_CONNECT_TO"
	childSandbox      = "PROBE_TEST_SANDBOX" // socket(2) is denied in the child
	noCapabilities    = "[]"
)

// attempt has the results of a plain connect and of a probe.
type attempt struct {
	User    string
	Connect string // the error, empty if it was connected
	Probe   Result
}

// connectAsAnother first drops capabilities from the bounding set, which is per thread. For root this takes effect only
// with the next exec.
func connectAsAnother() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var kept []int
	fail(json.Unmarshal([]byte(os.Getenv(childCapabilities)), &kept))
	runtime.LockOSThread()
	dropped := false
	for c := uintptr(0); os.Geteuid() == 0 && c <= unix.CAP_LAST_CAP; c++ {
		has, _ := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0) // an error means that this kernel does not know it
		if has == 1 && !slices.Contains(kept, int(c)) {
			fail(unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0))
			dropped = true
		}
	}
	if dropped {
		fail(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	if os.Getenv(childSandbox) != "" {
		fail(denySockets())
	}
	socket, a := os.Getenv(childOf), attempt{User: processUser().String()}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		a.Connect = err.Error()
	} else {
		_ = conn.Close()
	}
	plugin := NewPlugin(socket)
	defer plugin.Close()
	a.Probe = plugin.Probe(context.Background(), writer(generous))
	fail(json.NewEncoder(os.Stdout).Encode(a))
}

// denySockets makes socket(2) fail in this process, as a seccomp profile does, or systemd's RestrictAddressFamilies.
func denySockets() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program))); err != 0 {
		return err
	}
	return nil
}

// as connects to a socket as another user, with these groups and capabilities. apiServer is set in the environment
// unless it is empty.
func as(t *testing.T, user syscall.Credential, capabilities, apiServer, socket string, env ...string) (a attempt) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe") // other users may not enter the folder of the binary
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &user}
	cmd.Env = append([]string{childCapabilities + "=" + capabilities, childOf + "=" + socket}, env...)
	if apiServer != "" {
		cmd.Env = append(cmd.Env, contract.APIServerUserVariable+"="+apiServer)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return a
}

// needsRoot skips a test of several users.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes of several users")
	}
}

// socketOf starts a plugin, and returns its socket with an owner, a group and a mode.
func socketOf(t *testing.T, uid, gid int, mode os.FileMode) string {
	t.Helper()
	dir := program.SocketDir(t)
	plugin := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + dir + "/kms.sock", StateDir: dir + "/state"})
	socket := strings.TrimPrefix(plugin.Endpoint(), "unix://")
	for _, err := range []error{os.Chmod(dir, 0o755), os.Chown(socket, uid, gid), os.Chmod(socket, mode)} {
		must.Succeed(t, err)
	}
	return socket
}

// users are users of API servers, with the capabilities that a container runtime gives them, and the capabilities of
// the reporter.
var users = []struct {
	name                string
	credential          syscall.Credential
	apiServer, reporter string // capabilities, by linux/capability.h
	text                string
}{
	{"root", syscall.Credential{}, "[0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31]", "[1]", "0:0 groups 0 DAC_OVERRIDE"},
	{"root without DAC_OVERRIDE", syscall.Credential{}, noCapabilities, noCapabilities, "0:0 groups 0"},
	{"65534 with group 1000", syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{1000}},
		noCapabilities, noCapabilities, "65534:65534 groups 65534 1000"},
}

// docs/operate/socket-permissions.md has this table.
func TestVerdictIsWhatTheAPIServersOwnConnectGets(t *testing.T) {
	needsRoot(t)
	for _, s := range []struct {
		name     string
		uid, gid int
		mode     os.FileMode
		denied   [3]bool // to each of the users
	}{
		{"0755 of another user", 65532, 65532, 0o755, [3]bool{false, true, true}},
		{"0660 with group 1000", 65532, 1000, 0o660, [3]bool{false, true, false}},
		{"0600 of root", 0, 0, 0o600, [3]bool{false, false, true}},
	} {
		socket := socketOf(t, s.uid, s.gid, s.mode)
		for i, user := range users {
			t.Run(s.name+", "+user.name, func(t *testing.T) {
				apiServer := as(t, user.credential, user.apiServer, "", socket)
				if denied := apiServer.Connect != ""; denied != s.denied[i] {
					t.Fatalf("the API server's connect: %q, as %s", apiServer.Connect, apiServer.User)
				}
				reporter := as(t, user.credential, user.reporter, user.text, socket)
				r := reporter.Probe
				want := Result{Status: contract.Healthy}
				if s.denied[i] {
					want.Status, want.Reason = contract.Error, contract.ConnectFailed
					want.Detail = "cannot connect to " + socket + ": permission denied: this process runs as " + user.text +
						", as the API server does"
				}
				if reporter.User != user.text || r.Status != want.Status || r.Reason != want.Reason || r.Detail != want.Detail ||
					r.NotProbed != "" || (reporter.Connect != "") != s.denied[i] {
					t.Errorf("the reporter, as %s: connect %q, probe %+v", reporter.User, reporter.Connect, r)
				}
			})
		}
	}
}

// A reporter with another user than the API server must not blame the plugin.
func TestUserThatIsNotTheAPIServersBlamesNoPlugin(t *testing.T) {
	needsRoot(t)
	const is = "cannot be probed as the API server: connect: permission denied: this process runs as 0:0 groups 0, and the API server"
	socket := socketOf(t, 65532, 65532, 0o755)
	for name, c := range map[string]struct{ apiServer, want string }{
		"by hand":                {"", is + "'s user is not known: KMS_HEALTH_API_SERVER_USER is not set"},
		"another capability":     {"0:0 groups 0 DAC_OVERRIDE", is + " as 0:0 groups 0 DAC_OVERRIDE"},
		"another group":          {"0:0 groups 0 65532", is + " as 0:0 groups 0 65532"},
		"another user":           {"65532:65532 groups 65532", is + " as 65532:65532 groups 65532"},
		"a text that is no user": {"root", is + " as root"},
	} {
		t.Run(name, func(t *testing.T) {
			got := as(t, syscall.Credential{}, noCapabilities, c.apiServer, socket).Probe
			if got.NotProbed != c.want || got.Status != "" || got.Reason != "" || got.Detail != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("and may connect", func(t *testing.T) {
		if got := as(t, syscall.Credential{Uid: 65532}, noCapabilities, "0:0 groups 0", socket).Probe; got.Status != contract.Healthy {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("which may make no socket", func(t *testing.T) {
		got := as(t, syscall.Credential{}, noCapabilities, "0:0 groups 0", socket, childSandbox+"=1").Probe
		if want := "dial unix " + socket + ": socket: operation not permitted"; got.NotProbed != want || got.Status != "" {
			t.Errorf("got %+v, want that it is not probed: %s", got, want)
		}
	})
}
