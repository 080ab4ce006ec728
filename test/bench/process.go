package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// parting bounds the wait for a process to end.
const parting = 5 * time.Second

// process is a running child.
type process struct {
	name  string
	log   string // path of its stderr
	pid   int
	began time.Time // just before it was started
	os    *os.Process
	ended chan struct{}
	state string // how it ended; read it after ended
}

// startProcess runs a program with its stderr in a file, and also in a writer if
// there is one.
//
// It has a process group of its own, so that Ctrl-C is ours alone and it is
// ended in order. And it dies with us: by Pdeathsig, which the kernel sends when
// the thread that forked ends, so that thread is kept until the child is gone.
func startProcess(name, logFile string, stderr io.Writer, binary string, args ...string) (*process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(binary, args...)
	cmd.Stderr = log
	if stderr != nil {
		cmd.Stderr = stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{name: name, log: logFile, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p.began = time.Now()
		err := cmd.Start()
		if err == nil {
			p.os, p.pid = cmd.Process, cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // what it says is in the state
			p.state = cmd.ProcessState.String()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// stop ends the process and waits until it is gone.
func (p *process) stop() {
	_ = p.os.Signal(syscall.SIGTERM) // fails only when it has ended
	kill := time.AfterFunc(parting, func() { _ = p.os.Kill() })
	defer kill.Stop()
	<-p.ended
}

// alive returns an error, with the end of the log, if the process has ended: it
// should not have.
func (p *process) alive() error {
	select {
	case <-p.ended:
		text, _ := os.ReadFile(p.log)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("%s ended by itself (%s); its log ends:\n%s", p.name, p.state, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	default:
		return nil
	}
}
