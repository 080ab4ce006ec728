package controlplane

import (
	"context"
	"time"
)

// Child is one run of any other program beside the servers, under the same
// promise: it ends with this process.
type Child struct{ process *process }

// StartChild starts binary with exactly this environment (nil: ours) and its
// output appended to logPath. name is for errors.
func StartChild(name, binary string, env, args []string, logPath string) (*Child, error) {
	p, err := startProcess(name, binary, env, args, logPath)
	if err != nil {
		return nil, err
	}
	return &Child{p}, nil
}

// PID is the process id, of a process that may have ended.
func (c *Child) PID() int { return c.process.handle.Pid }

// Done is closed once the process has ended and is reaped.
func (c *Child) Done() <-chan struct{} { return c.process.done }

// Err returns how it ended, as exec.Cmd.Wait does. Read it after Done.
func (c *Child) Err() error { return c.process.waitErr }

// Stop sends SIGTERM, and SIGKILL after grace or when ctx ends. On return
// without an error the process is reaped.
func (c *Child) Stop(ctx context.Context, grace time.Duration) error {
	return c.process.stop(ctx, grace)
}

// Kill ends the process by SIGKILL and waits until it is reaped.
func (c *Child) Kill() error { return c.process.kill() }
