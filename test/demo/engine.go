package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	// waitLimit bounds each wait, also on a busy machine.
	waitLimit = 30 * time.Second
	// grace bounds the wait for a process to end.
	grace = 10 * time.Second
	// poll is how often a wait looks.
	poll = 10 * time.Millisecond
)

// demo is a run of scenes. Each does something, waits until its effect is there, and
// prints that. A method that fails ends the run: it panics with a failure, which runScript
// returns as the error.
type demo struct {
	ctx     context.Context
	signals context.Context // until Ctrl-C, where ctx has a bound
	dir     string
	next    string   // the last line, once everything has ended
	logs    []string // files whose ends are printed when the demo fails
	ends    []func() error
	alive   *controlplane.Child // must not end while something is waited for; nil if nothing must run
	scene   int
	colours bool
}

type failure struct{ error }

func (d *demo) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func (d *demo) fail(format string, args ...any) { d.must(fmt.Errorf(format, args...)) }

// runScript runs a script, and ends everything that it started.
func runScript(signals context.Context, bound time.Duration, script func(*demo)) (err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(signals, bound)
	defer cancel()
	// Not TMPDIR: the path of a socket has at most 107 bytes, and with a pod's
	// folders it comes close.
	dir, err := os.MkdirTemp("/tmp", "k")
	if err != nil {
		return err
	}
	d := &demo{ctx: ctx, signals: signals, dir: dir, colours: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == ""}
	d.atEnd(func() error { return os.RemoveAll(dir) })
	err = d.run(script)
	if err != nil && signals.Err() == nil {
		err = errors.Join(err, d.logTails())
	}
	for _, end := range slices.Backward(d.ends) {
		err = errors.Join(err, end())
	}
	if err != nil && signals.Err() != nil {
		return errors.New("interrupted; everything was ended")
	}
	if err == nil && d.next != "" {
		d.say("\nAll of this happened as shown, in %.0f seconds. Nothing is left running.", time.Since(began).Seconds())
		d.say("%s", d.next)
	}
	return err
}

func (d *demo) run(script func(*demo)) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	script(d)
	return nil
}

// atEnd has a function called after the script. The last given is the first called.
func (d *demo) atEnd(end func() error) { d.ends = append(d.ends, end) }

// program returns the path of a program that the Makefile builds.
func (d *demo) program(name string) string {
	path, err := filepath.Abs(filepath.Join("bin", name))
	d.must(err)
	if _, err := os.Stat(path); err != nil {
		d.fail("%w; run `make demo` or `make demo-cluster`, which build it", err)
	}
	return path
}

// start runs a program of ours, with its output in a file.
func (d *demo) start(name, log string, args ...string) *controlplane.Child {
	path := filepath.Join(d.dir, log)
	child, err := controlplane.StartChild(name, d.program(name), nil, args, path)
	d.must(err)
	d.logs = append(d.logs, path)
	d.atEnd(func() error { return stop(name, child) })
	return child
}

// stop ends a process by SIGTERM. One that ends otherwise than with 0 is an error.
func stop(name string, child *controlplane.Child) error {
	err := child.Stop(context.Background(), grace)
	if err == nil {
		err = child.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// until waits until a check succeeds.
func (d *demo) until(what string, check func() error) {
	ctx, cancel := context.WithTimeout(d.ctx, waitLimit)
	defer cancel()
	var ended <-chan struct{}
	if d.alive != nil {
		ended = d.alive.Done()
	}
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-time.After(poll):
		case <-ended:
			d.fail("process %d ended by itself before this was seen: %s", d.alive.PID(), what)
		case <-ctx.Done():
			d.fail("expected, but not seen within %s: %s: %w", waitLimit, what, err)
		}
	}
}

// command gives a command to a plugin, by its control socket.
func (d *demo) command(control string, args ...string) {
	client, err := kmsplugin.NewClient(control)
	d.must(err)
	_, err = client.Do(d.ctx, args[0], args[1:]...)
	d.must(err)
}

// logTails returns what was logged last, for a demo that failed.
func (d *demo) logTails() error {
	const lines = 12
	var b strings.Builder
	for _, pattern := range d.logs {
		paths, _ := filepath.Glob(pattern) // fails for a bad pattern only
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil || len(text) == 0 {
				continue
			}
			all := strings.Split(strings.TrimSpace(string(text)), "\n")
			fmt.Fprintf(&b, "--- the end of %s:\n%s\n", d.tidy(path), strings.Join(all[max(0, len(all)-lines):], "\n"))
		}
	}
	return errors.New(strings.TrimSpace(b.String()))
}

func (d *demo) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// title opens a scene.
func (d *demo) title(text string) {
	d.scene++
	line := fmt.Sprintf("\n%d. %s", d.scene, text)
	if d.colours {
		line = "\x1b[1m" + line + "\x1b[0m"
	}
	fmt.Println(line)
}

// note prints a line within a scene.
func (d *demo) note(format string, args ...any) { d.say("   %s", d.tidy(fmt.Sprintf(format, args...))) }

// shell shows what was done, as one would type it.
func (d *demo) shell(format string, args ...any) { d.note("$ "+format, args...) }

// tidy keeps the temporary folder out of the output.
func (d *demo) tidy(text string) string { return strings.ReplaceAll(text, d.dir, "…") }

// text shows output of a program, or a file.
func (d *demo) text(output string) {
	for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
		fmt.Println(strings.TrimRight("     "+d.tidy(line), " "))
	}
}

var colour = map[contract.Status]string{contract.Healthy: "\x1b[32m", contract.Unhealthy: "\x1b[33m", contract.Error: "\x1b[31m"}

// line is one of a table of what reporters reported.
type line struct {
	status contract.Status
	cells  []string
}

func (d *demo) table(header string, lines []line) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, header) // a Builder never fails
	for _, l := range lines {
		for i := range l.cells {
			l.cells[i] = cmp.Or(d.tidy(l.cells[i]), "-")
		}
		_, _ = fmt.Fprintln(w, strings.Join(l.cells, "\t"))
	}
	_ = w.Flush()
	for i, text := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if d.colours && i > 0 {
			text = colour[lines[i-1].status] + text + "\x1b[0m" // after the columns are laid out
		}
		fmt.Println("     " + text)
	}
}
