package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

// asPlugin makes the test binary be kms-plugin, so that the tests run the
// real main in a real process without building it again.
const asPlugin = "KMS_PLUGIN_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	// The race detector sleeps for a second at exit, unless it is configured not to.
	cmd.Env = append(os.Environ(), asPlugin+"=1", "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	return cmd
}

// process is a plugin in a process of its own.
type process struct {
	cmd                        *exec.Cmd
	dir, endpoint, ctl, socket string
}

// launch returns when the plugin reports that it serves.
func launch(t *testing.T, flags ...string) *process {
	t.Helper()
	// Not t.TempDir(): a socket's name has 107 bytes at most.
	dir, err := os.MkdirTemp("", "kms")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p := &process{dir: dir, ctl: filepath.Join(dir, "control.sock"), socket: filepath.Join(dir, "kms.sock")}
	p.endpoint = "unix://" + p.socket
	p.start(t, flags...)
	return p
}

func (p *process) start(t *testing.T, flags ...string) {
	t.Helper()
	p.cmd = command(append([]string{"--endpoint", p.endpoint, "--state-dir", filepath.Join(p.dir, "state"), "--control", p.ctl}, flags...)...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.end(t, syscall.SIGKILL) })
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Serving") {
			return
		}
		t.Log(lines.Text())
	}
	t.Fatalf("the plugin ended before it served: %v", lines.Err())
}

// end sends a signal, and returns how the process ended and how long it took.
func (p *process) end(t *testing.T, signal syscall.Signal) (took time.Duration, err error) {
	t.Helper()
	if p.cmd == nil {
		return 0, nil
	}
	begin := time.Now()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	late := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	err = p.cmd.Wait()
	late.Stop()
	p.cmd = nil
	return time.Since(begin), err
}

// control runs `kms-plugin ctl` as a user would.
func (p *process) control(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := command(append([]string{"ctl", "--control", p.ctl}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// status returns what `ctl status` prints, decoded.
func (p *process) status(t *testing.T) kmsplugin.State {
	t.Helper()
	out, errs, err := p.control(t, "status")
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	var state kmsplugin.State
	if err := json.Unmarshal([]byte(out), &state); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return state
}

func TestTheBinaryTakesCommandsAndEndsOnSIGTERM(t *testing.T) {
	t.Parallel()
	p := launch(t, "--fault", "unhealthy vault is sealed", "--fault", "hang decrypt", "--grpc-health")
	state := p.status(t)
	if len(state.Faults) != 2 || state.Faults[0].String() != `unhealthy "vault is sealed"` || !state.GRPCHealth || state.Endpoint != p.endpoint {
		t.Errorf("state at the start: %+v", state)
	}
	if out, errs, err := p.control(t, "heal"); err != nil || !strings.Contains(out, "faults []") {
		t.Errorf("heal: %s, %s, %v", out, errs, err)
	}
	if out, _, err := p.control(t, "unhealthy", "-1 is", "not ok"); err != nil || !strings.Contains(out, `[unhealthy "-1 is not ok"]`) {
		t.Errorf("unhealthy: %s, %v", out, err)
	}
	if out, errs, err := p.control(t, "sulk"); err == nil || out != "" || !strings.Contains(errs, `"sulk"`) {
		t.Errorf("sulk: %s, %s, %v", out, errs, err)
	}
	if _, _, err := p.control(t, "rotate"); err != nil {
		t.Error(err)
	}
	rotated := p.status(t).KeyID
	if rotated == state.KeyID {
		t.Errorf("key %s, before and after the rotation", rotated)
	}

	if took, err := p.end(t, syscall.SIGTERM); err != nil || took > 2*time.Second {
		t.Errorf("ended after %s: %v", took, err)
	}
	for _, path := range []string{p.socket, p.ctl} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was left: %v", path, err)
		}
	}
	p.start(t)
	if again := p.status(t); again.KeyID != rotated || again.Keys != 2 || len(again.Faults) != 0 {
		t.Errorf("state after the restart: %+v", again)
	}
}

func TestTheBinaryStartsAgainAfterAKill(t *testing.T) {
	t.Parallel()
	p := launch(t)
	id := p.status(t).KeyID
	if _, err := p.end(t, syscall.SIGKILL); err == nil {
		t.Error("a killed process exited with 0")
	}
	if _, err := os.Lstat(p.socket); err != nil {
		t.Fatalf("the kill left no socket: %v", err)
	}
	p.start(t)
	if again := p.status(t); again.KeyID != id || !again.Listening {
		t.Errorf("state after the restart: %+v", again)
	}
	// Clients that connect and send nothing must not hold up the end.
	for _, path := range []string{p.socket, p.ctl} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	if took, err := p.end(t, os.Interrupt.(syscall.Signal)); err != nil || took > 2*time.Second {
		t.Errorf("ended after %s: %v", took, err)
	}
}

func TestHelpListsEveryFaultAndBadFlagsFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		ok   bool
		want string
	}{
		{[]string{"--help"}, true, "--endpoint"},
		{[]string{"ctl", "--help"}, true, kmsplugin.Help()},
		{[]string{"ctl"}, false, "--control"},
		{[]string{"ctl", "--control", "/no/such.sock"}, false, "a command"},
		{[]string{"ctl", "--control", "/no/such.sock", "status"}, false, "no such file"},
		{[]string{"ctl", "--control", "unix://relative.sock", "status"}, false, "control socket"},
		{nil, false, "endpoint"},
		{[]string{"--endpoint", "@kms-plugin-test-flags"}, false, "state directory"},
		{[]string{"--endpoint", "@kms-plugin-test-flags", "--state-dir", t.TempDir(), "sulk"}, false, `"sulk"`},
		{[]string{"--endpoint", "@kms-plugin-test-flags", "--state-dir", t.TempDir(), "--fault", "sulk"}, false, "--fault"},
		{[]string{"--endpoint", "@kms-plugin-test-flags", "--state-dir", t.TempDir(), "--control", "unix://relative.sock"}, false, "control socket"},
		{[]string{"--sulk"}, false, "unknown flag"},
	} {
		out, err := command(c.args...).CombinedOutput()
		if (err == nil) != c.ok || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v, want %q in:\n%s", c.args, err, c.want, out)
		}
	}
}
