package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// tailBytes bounds how much of a process's log goes into an error.
const tailBytes = 4 << 10

// killGrace bounds the wait after SIGKILL. Only a process in uninterruptible sleep needs longer.
const killGrace = time.Minute

// Child is one run of a program. A restart is another Child.
type Child struct {
	Name    string
	logPath string
	handle  *os.Process
	done    chan struct{} // closed once the child is reaped
	waitErr error         // the result of exec.Cmd.Wait; read it after done
}

// StartChild starts binary with exactly this environment (nil: the environment of this process), and appends its
// output to logPath. The child ends with this process.
func StartChild(name, binary string, env, args []string, logPath string) (*Child, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	// The child has its own descriptor. A file, unlike a pipe, needs no goroutine that copies, and remains readable
	// after both processes have ended.
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p, err := StartCommand(name, cmd, nil)
	if err == nil {
		p.logPath = logPath
	}
	return p, err
}

// StartCommand starts cmd on a thread that has called prepare, unless prepare is nil.
//
// The child gets a separate process group, so that Ctrl-C in a terminal reaches only this process, which then ends
// the child in order. The kernel sends Pdeathsig when the *thread* that forked ends, and the Go runtime may end any
// thread. So the goroutine locks its thread until the child is reaped. It never unlocks it, so the thread then ends:
// prepare may have changed it.
func StartCommand(name string, cmd *exec.Cmd, prepare func() error) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	p := &Child{Name: name, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		var err error
		if prepare != nil {
			err = prepare()
		}
		if err == nil {
			err = cmd.Start()
		}
		p.handle = cmd.Process
		started <- err
		if err != nil {
			return
		}
		p.waitErr = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// PID returns the process ID. The process may have ended.
func (p *Child) PID() int { return p.handle.Pid }

// Done is closed once the process has ended and is reaped.
func (p *Child) Done() <-chan struct{} { return p.done }

// Err returns the result of exec.Cmd.Wait. Call it only after Done is closed.
func (p *Child) Err() error { return p.waitErr }

// Running returns whether the child has not been reaped yet.
func (p *Child) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends sig to the child alone. os.Process holds a pidfd, so the signal cannot reach another process that got
// the process ID of an ended child.
func (p *Child) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return os.ErrProcessDone
	}
	if err := p.handle.Signal(sig); err != nil {
		return fmt.Errorf("send %q to %s (pid %d): %w", sig, p.Name, p.PID(), err)
	}
	return nil
}

// Stop sends SIGTERM to the child, and kills it after grace or when ctx ends. If it returns no error, the child is
// reaped and its ports are free.
func (p *Child) Stop(ctx context.Context, grace time.Duration) error {
	// A stopped process handles SIGTERM only after SIGCONT.
	return p.end(ctx, grace, syscall.SIGTERM, syscall.SIGCONT)
}

// Kill ends the child at once and waits until it is reaped.
func (p *Child) Kill() error { return p.end(context.Background(), killGrace, syscall.SIGKILL) }

func (p *Child) end(ctx context.Context, grace time.Duration, signals ...syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	for _, sig := range signals {
		if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	case <-ctx.Done():
	}
	if signals[0] == syscall.SIGKILL {
		return fmt.Errorf("%s (pid %d) did not end within %v of SIGKILL", p.Name, p.PID(), grace)
	}
	return p.Kill()
}

// End sends SIGTERM, waits until the child is reaped, and returns how it ended.
func (p *Child) End() error {
	if err := p.Stop(context.Background(), killGrace); err != nil {
		return err
	}
	return p.waitErr
}

// await polls check until it succeeds, the process ends or startTimeout is over. The error has the last result of
// the check, how the process ended, and the end of its log.
func (p *Child) await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := wait.Until(ctx, func(ctx context.Context) error {
		if !p.Running() {
			return wait.Final(fmt.Errorf("it ended: %w", p.waitErr))
		}
		return check(ctx)
	})
	if err == nil {
		return nil
	}
	log, readErr := os.ReadFile(p.logPath)
	if readErr != nil {
		log = []byte(readErr.Error())
	}
	return fmt.Errorf("%w\n--- end of %s:\n%s", err, p.logPath, log[max(0, len(log)-tailBytes):])
}

// binary finds one of the server binaries.
func binary(name string) (string, error) {
	const env = "KUBEBUILDER_ASSETS"
	path, err := exec.LookPath(filepath.Join(os.Getenv(env), name))
	if err != nil || os.Getenv(env) == "" {
		return "", fmt.Errorf("no %s by the environment variable %s (run \"make test\"): %w", name, env, err)
	}
	return path, nil
}
