//go:build integration

package integration

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

// nobody is the user of the image. A file without permission is unreadable for it, not
// for root.
const nobody = 65532

// What the file's content may be is a table of pkg/config/v1alpha1.
func TestEachInvalidFileIsLoggedInOneLineAndTheLastValidOneStaysActive(t *testing.T) {
	r := newReporter(t)
	one := r.plugin("1")
	r.configure("", "1:Write")
	good, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	asRoot := os.Getuid() == 0
	r.start(func(a *syscall.SysProcAttr) {
		if !asRoot {
			return
		}
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		for path, mode := range map[string]os.FileMode{r.dir: 0o755, r.dir + "/kms-1.sock": 0o777} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	})
	r.logged("Plugin is healthy")

	for _, bad := range []struct {
		what string
		make func()
		want []string // path and value, as the log's quoting has them
	}{
		{"unknown field", func() { r.write(bytes.Replace(good, []byte("interval: 1s"), []byte("interval: 1s, retries: 3"), 1)) }, []string{`unknown field`, `probe.retries`}},
		{"half a file", func() { r.write(good[:len(good)-10]) }, []string{r.file, "invalid YAML: line "}},
		{"10 MB", func() { r.write(bytes.Repeat([]byte("# \n"), 10<<20/3)) }, []string{r.file, "too large: the limit is 131072 bytes"}},
		{"a directory", func() {
			if err := os.Remove(r.file); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(r.file, 0o755); err != nil {
				t.Fatal(err)
			}
		}, []string{r.file, "must be a regular file"}},
		{"no permission", func() {
			if err := os.WriteFile(r.file+".new", good, 0o000); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(r.file+".new", r.file); err != nil {
				t.Fatal(err)
			}
		}, []string{r.file, "permission denied"}},
		{"gone", func() {
			if err := os.Remove(r.file); err != nil {
				t.Fatal(err)
			}
		}, []string{r.file, "no such file or directory"}},
	} {
		t.Run(bad.what, func(t *testing.T) {
			reported := r.count("Configuration file cannot be used")
			bad.make()
			r.logged(append(bad.want, "Configuration file cannot be used; the last good one stays active")...)
			if n := r.count("Configuration file cannot be used"); n != reported+1 {
				t.Errorf("reported in %d lines, want one", n-reported)
			}
			calls := one.Calls(kmsplugin.CallStatus).Count
			if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, calls+1); err != nil {
				t.Errorf("no longer probed: %v", err)
			}
			if code, text := r.get("/healthz?verbose"); code != http.StatusOK || !strings.Contains(text, "[-]config failed: the last good configuration is active: ") {
				t.Errorf("/healthz: %d %s", code, text)
			}
			if code, _ := r.get("/readyz"); code != http.StatusOK {
				t.Errorf("/readyz: %d", code)
			}
			_ = os.Remove(r.file) // the directory
			r.write(good)
			r.logged("Configuration active")
		})
	}
	if got := one.State().Connections.Accepted; got != 1 {
		t.Errorf("%d connections to a plugin that never changed", got)
	}
}

func TestDeletedSocketFolderOfTheHostIsAnErrorWithAnAction(t *testing.T) {
	// A folder that is mounted while it is deleted needs a mount; that a path of
	// it then leads to a folder without links is the same by way of /proc.
	r := newReporter(t)
	folder := r.dir + "/sockets"
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	r.configure("", "1:Write")
	content, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	path := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(open.Fd()))
	r.write(bytes.Replace(content, []byte(r.dir+"/kms-1.sock"), []byte(path+"/kms-1.sock"), 1))
	r.start()
	r.logged("Plugin is not healthy", "no such file or directory")
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	// A detail alone is logged once a minute at most.
	eventually(t, "the deleted folder is reported", func() bool {
		_, text := r.get("/kms-providers")
		return strings.Contains(text, "its folder was deleted on the host") && strings.Contains(text, "delete the reporter's pod")
	})
}

func TestReporterRunsAfterTheReadersOfItsOutputClosed(t *testing.T) {
	r := newReporter(t)
	one := r.plugin("1")
	r.configure("", "1:Write")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config", r.file, "--output", "-")
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(read.Close(), write.Close()); err != nil {
		t.Fatal(err)
	}
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, 1); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	if err := one.WaitForCalls(soon(t), kmsplugin.CallStatus, 3); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
