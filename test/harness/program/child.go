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

	"github.com/kms-health/kms-health/test/harness/must"
)

// Child is a program that a test runs. Its ProcessState is set once it has ended.
type Child struct {
	*exec.Cmd
	Ended chan struct{} // closed once it has ended
}

// Start starts a program, and kills it at the end of the test. The test fails if the program has a data race. The race
// detector's report goes to a file: if standard error is a full pipe, the program could not end until it had written
// the report.
func Start(t *testing.T, cmd *exec.Cmd) *Child {
	t.Helper()
	p := &Child{Cmd: cmd, Ended: make(chan struct{})}
	if p.Env == nil {
		p.Env = os.Environ()
	}
	// Without the race detector's sleep at the end, tests can measure how long the program takes to end.
	races := filepath.Join(t.TempDir(), "race")
	p.Env = append(p.Env, "GORACE=atexit_sleep_ms=0 log_path="+races)
	must.Succeed(t, p.Start())
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

// End sends signals and waits, up to limit, until the program ends. It returns the exit code and the time since the
// first signal.
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

// Text returns what was written so far.
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

// Pipe returns a file for a process to write to.
func (o *Output) Pipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must.Succeed(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(o, r) // ends when all copies of w are closed
	}()
	t.Cleanup(func() {
		_ = w.Close()
		<-done
		_ = r.Close()
	})
	return w
}

// SocketDir returns a folder for sockets, which is removed at the end of the test. The path of t.TempDir is too long
// for a socket.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kmsh")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// FullPipe returns the write end of a full pipe whose read end is never read.
func FullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must.Succeed(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	must.Succeed(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	if n, err := unix.Write(int(w.Fd()), nil); n != 0 || err != nil { // Fd sets it to blocking, for the child
		t.Fatal(n, err)
	}
	return w
}
