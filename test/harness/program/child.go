package program

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a program that a test runs. How it ended is in its ProcessState.
type Child struct {
	*exec.Cmd
	Ended chan struct{} // closed when it has ended
}

// Start starts a program, which is killed at the end of the test. The test fails if the
// program has a data race: its report goes to a file, since standard error may be a full pipe,
// and the write of a report would then keep the program from its end.
func Start(t *testing.T, cmd *exec.Cmd) *Child {
	t.Helper()
	p := &Child{Cmd: cmd, Ended: make(chan struct{})}
	if p.Env == nil {
		p.Env = os.Environ()
	}
	// The race detector's sleep at the end is none of the program's.
	races := filepath.Join(t.TempDir(), "race")
	p.Env = append(p.Env, "GORACE=atexit_sleep_ms=0 log_path="+races)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.Ended)
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.Ended
		files, _ := filepath.Glob(races + ".*")
		for _, file := range files {
			report, _ := os.ReadFile(file)
			t.Errorf("%s has a data race:\n%s", cmd.Path, report)
		}
	})
	return p
}

// End sends signals, and returns the exit code and the time from the first of them to
// the end, for which it waits up to a limit.
func (p *Child) End(t *testing.T, limit time.Duration, signals ...os.Signal) (code int, took time.Duration) {
	t.Helper()
	began := time.Now()
	for _, s := range signals {
		if err := p.Process.Signal(s); err != nil {
			t.Fatalf("it had ended: %v", err)
		}
	}
	select {
	case <-p.Ended:
	case <-time.After(limit):
		t.Fatalf("it did not end within %s of %v", limit, signals)
	}
	return p.ProcessState.ExitCode(), time.Since(began)
}

// Output collects what a process writes.
type Output struct {
	mu   sync.Mutex
	read bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.read.Write(p)
}

// Text is what was written so far.
func (o *Output) Text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.read.String()
}

// Await waits until a text was written.
func (o *Output) Await(t *testing.T, limit time.Duration, want string) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(o.Text(), want) {
			return
		}
	}
	t.Fatalf("no %q within %s in\n%s", want, limit, o.Text())
}

// Pipe is a file for a process to write to.
func (o *Output) Pipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(o, r) // ends when every end to write to is closed
	}()
	t.Cleanup(func() {
		_ = w.Close()
		<-done
		_ = r.Close()
	})
	return w
}

// SocketDir is a folder for sockets until the end of the test. The name of t.TempDir is too long
// for them.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kmsh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// FullPipe returns the write end of a full pipe whose read end is never read.
func FullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	if n, err := unix.Write(int(w.Fd()), nil); n != 0 || err != nil { // Fd makes it blocking, for the child
		t.Fatal(n, err)
	}
	return w
}
