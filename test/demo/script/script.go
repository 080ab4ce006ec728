// Package script runs the scenes of a demo: each does something, waits until its effect is
// there, and prints that.
package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	// WaitLimit bounds each wait, also on a busy machine.
	WaitLimit = 30 * time.Second
	// grace bounds the wait for a process to end.
	grace = 10 * time.Second
	// poll is how often a wait looks.
	poll = 10 * time.Millisecond
)

// Script is a run of scenes. A method that fails ends the run: it panics with a failure,
// which Main reports.
type Script struct {
	Ctx     context.Context
	Signals context.Context // until Ctrl-C, where Ctx has a bound
	Dir     string
	Next    string   // the last line, once everything has ended
	Logs    []string // files whose ends are printed when the demo fails
	Alive   *Process // must not end while something is waited for; nil if nothing must run

	ends    []func() error
	scene   int
	colours bool
}

type failure struct{ error }

// Must ends the run if err is not nil.
func (s *Script) Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Fail ends the run.
func (s *Script) Fail(format string, args ...any) { s.Must(fmt.Errorf(format, args...)) }

// Main runs scenes, ends everything that they started, and exits with 0 only if everything
// that was shown is what happened.
func Main(name string, bound time.Duration, scenes func(*Script)) {
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(signals, bound, scenes)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\n%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(signals context.Context, bound time.Duration, scenes func(*Script)) (err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(signals, bound)
	defer cancel()
	// Not TMPDIR: the path of a socket has at most 107 bytes, and with a pod's
	// folders it comes close.
	dir, err := os.MkdirTemp("/tmp", "k")
	if err != nil {
		return err
	}
	colours := term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == ""
	s := &Script{Ctx: ctx, Signals: signals, Dir: dir, colours: colours}
	s.AtEnd(func() error { return os.RemoveAll(dir) })
	err = s.play(scenes)
	if err != nil && signals.Err() == nil {
		err = errors.Join(err, s.logTails())
	}
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	if err != nil && signals.Err() != nil {
		return errors.New("interrupted; everything was ended")
	}
	if err == nil && s.Next != "" {
		s.Say("\nAll of this happened as shown, in %.0f seconds. Nothing is left running.", time.Since(began).Seconds())
		s.Say("%s", s.Next)
	}
	return err
}

func (s *Script) play(scenes func(*Script)) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	scenes(s)
	return nil
}

// AtEnd has a function called after the script. The last given is the first called.
func (s *Script) AtEnd(end func() error) { s.ends = append(s.ends, end) }

// Program returns the path of a program that the Makefile builds.
func (s *Script) Program(name string) string {
	path, err := filepath.Abs(filepath.Join("bin", name))
	s.Must(err)
	if _, err := os.Stat(path); err != nil {
		s.Fail("%w; run `make demo` or `make demo-cluster`, which build it", err)
	}
	return path
}

// Process is a program that the script started.
type Process struct {
	*exec.Cmd
	done chan struct{} // closed when it has ended
	err  error
}

// Start starts a program of ours, with its output in a file. It ends with the script.
func (s *Script) Start(name, log string, args ...string) *Process {
	path := filepath.Join(s.Dir, log)
	output, err := os.Create(path)
	s.Must(err)
	defer func() { _ = output.Close() }()
	p := &Process{Cmd: exec.Command(s.Program(name), args...), done: make(chan struct{})}
	p.Stdout, p.Stderr = output, output
	// Ctrl-C is for the script alone, which ends the others in order.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel sends a Pdeathsig when the thread that started p ends
		err := p.Cmd.Start()
		started <- err
		if err == nil {
			p.err = p.Wait()
			close(p.done)
		}
	}()
	s.Must(<-started)
	s.Logs = append(s.Logs, path)
	s.AtEnd(p.Stop)
	return p
}

// Stop ends a process by SIGTERM. One that ends otherwise than with 0 is an error.
func (p *Process) Stop() error {
	_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
	late := time.AfterFunc(grace, func() { _ = p.Process.Kill() })
	defer late.Stop()
	<-p.done
	if p.err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(p.Path), p.err)
	}
	return nil
}

// Until waits until a check succeeds.
func (s *Script) Until(what string, check func() error) {
	ctx, cancel := context.WithTimeout(s.Ctx, WaitLimit)
	defer cancel()
	var ended <-chan struct{}
	if s.Alive != nil {
		ended = s.Alive.done
	}
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-time.After(poll):
		case <-ended:
			s.Fail("process %d ended by itself before this was seen: %s", s.Alive.Process.Pid, what)
		case <-ctx.Done():
			s.Fail("expected, but not seen within %s: %s: %w", WaitLimit, what, err)
		}
	}
}

// Command gives a command to a plugin, by its control socket.
func (s *Script) Command(control string, args ...string) {
	client, err := kmsplugin.NewClient(control)
	s.Must(err)
	_, err = client.Do(s.Ctx, args[0], args[1:]...)
	s.Must(err)
}

// logTails returns what was logged last, for a demo that failed.
func (s *Script) logTails() error {
	const lines = 12
	var b strings.Builder
	for _, pattern := range s.Logs {
		paths, _ := filepath.Glob(pattern) // fails for a bad pattern only
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil || len(text) == 0 {
				continue
			}
			all := strings.Split(strings.TrimSpace(string(text)), "\n")
			tail := strings.Join(all[max(0, len(all)-lines):], "\n")
			fmt.Fprintf(&b, "--- the end of %s:\n%s\n", s.tidy(path), tail)
		}
	}
	return errors.New(strings.TrimSpace(b.String()))
}

// Say prints a line.
func (s *Script) Say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Title opens a scene.
func (s *Script) Title(text string) {
	s.scene++
	line := fmt.Sprintf("\n%d. %s", s.scene, text)
	if s.colours {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Println(line)
}

// Note prints a line within a scene.
func (s *Script) Note(format string, args ...any) {
	s.Say("   %s", s.tidy(fmt.Sprintf(format, args...)))
}

// Shell shows what was done, as one would type it.
func (s *Script) Shell(format string, args ...any) { s.Note("$ "+format, args...) }

// tidy keeps the temporary folder out of the output.
func (s *Script) tidy(text string) string { return strings.ReplaceAll(text, s.Dir, "…") }

// Text shows output of a program, or a file.
func (s *Script) Text(output string) {
	for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
		fmt.Println(strings.TrimRight("     "+s.tidy(line), " "))
	}
}

var colour = map[contract.Status]string{
	contract.Healthy: "\x1b[32m", contract.Unhealthy: "\x1b[33m", contract.Error: "\x1b[31m",
}

// Line is one of a table of what reporters reported.
type Line struct {
	Status contract.Status
	Cells  []string
}

// Table shows lines below a header, whose columns are separated by tabs.
func (s *Script) Table(header string, lines []Line) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, header) // a Builder never fails
	for _, l := range lines {
		for i := range l.Cells {
			l.Cells[i] = cmp.Or(s.tidy(l.Cells[i]), "-")
		}
		_, _ = fmt.Fprintln(w, strings.Join(l.Cells, "\t"))
	}
	_ = w.Flush()
	for i, text := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if s.colours && i > 0 {
			text = colour[lines[i-1].Status] + text + "\x1b[0m" // after the columns are laid out
		}
		fmt.Println("     " + text)
	}
}
