package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/wait"
)

const parentEnv = "CONTROLPLANE_TEST_PARENT"

// beParent starts a child that writes to the named pipe, and waits to be killed.
func beParent() {
	if _, err := startProcess("child", "/bin/sh", nil, []string{"-c", "echo started; exec sleep 300"}, os.Getenv(parentEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func TestAChildDiesWithItsParent(t *testing.T) {
	// A pipe with a name ends when its last writer does: no process id to ask
	// for, which may be a zombie's, unused, or another process's.
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+pipe)
	parent.Stderr = os.Stderr
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		parent.Process.Kill()
		parent.Wait()
	})
	// Not blocking, so that a parent which never opens it fails the test.
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	err = wait.Until(deadline(t, 10*time.Second), func(ctx context.Context) error {
		_, err := reader.Read(buffer)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	if err := reader.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		t.Fatalf("the child has outlived its parent: %v", err)
	}
}

func TestStopEndsAFrozenProcessInOrder(t *testing.T) {
	p := startShell(t, `trap 'echo in order; exit 0' TERM; echo ready; while :; do sleep 0.05; done`)
	awaitLog(t, p, "ready")
	if err := p.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(t.Context(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if log := logTail(p.logPath); !strings.Contains(log, "in order") {
		t.Errorf("it did not see SIGTERM; its log: %q", log)
	}
}

func TestStopKillsAProcessThatDoesNotEnd(t *testing.T) {
	p := startShell(t, `trap '' TERM; echo ready; while :; do sleep 0.05; done`)
	awaitLog(t, p, "ready")
	if err := p.stop(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.running() {
		t.Error("it is still running")
	}
	if err := p.stop(t.Context(), time.Second); err != nil {
		t.Errorf("stopping it again: %v", err)
	}
}

func TestAProcessThatEndsByItselfEndsTheWaitAndShowsItsLog(t *testing.T) {
	p := startShell(t, `echo the reason >&2; exit 3`)
	err := p.await(deadline(t, 10*time.Second), func(context.Context) error { return fmt.Errorf("not there") })
	if err == nil {
		t.Fatal("the wait succeeded")
	}
	text := p.explain(err).Error()
	for _, want := range []string{"ended", "exit status 3", "the reason", p.logPath} {
		if !strings.Contains(text, want) {
			t.Errorf("the error lacks %q:\n%s", want, text)
		}
	}
}

func TestLogTailIsBoundedAndStartsAtALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := strings.Repeat("x", 99) + "\n"
	if err := os.WriteFile(path, []byte(strings.Repeat(line, 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	tail := logTail(path)
	if len(tail) > tailBytes || len(tail) < tailBytes/2 {
		t.Errorf("the tail has %d bytes", len(tail))
	}
	if first, _, _ := strings.Cut(tail, "\n"); len(first) != 99 {
		t.Errorf("the first line is cut: %d bytes", len(first))
	}
}

func TestAMissingBinarySaysWhatToRun(t *testing.T) {
	for name, folder := range map[string]string{"unset": "", "empty folder": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", folder)
			_, err := Start(t.Context(), Options{})
			if err == nil || !strings.Contains(err.Error(), `run "make test"`) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func startShell(t *testing.T, script string) *process {
	t.Helper()
	p, err := startProcess("shell", "/bin/sh", nil, []string{"-c", script}, filepath.Join(t.TempDir(), "shell.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func awaitLog(t *testing.T, p *process, want string) {
	t.Helper()
	err := p.await(deadline(t, 10*time.Second), func(context.Context) error {
		if log := logTail(p.logPath); !strings.Contains(log, want) {
			return fmt.Errorf("no %q in the log", want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(p.explain(err))
	}
}
