package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process of a container.
type Process struct {
	PID     int // on the host
	Started time.Time
}

// Processes returns the processes of running containers with a name, in pods whose name begins with a prefix. It asks
// the node's container runtime, so it works without an API server. Containers that do not run yet are omitted: their
// control groups have short-lived processes of the runtime (runc:[0:PARENT]).
func (n *Node) Processes(ctx context.Context, podPrefix, container string) ([]Process, error) {
	out, err := n.ctr(ctx, "containers", "list", "--quiet",
		fmt.Sprintf(`labels."io.kubernetes.container.name"==%q,labels."io.kubernetes.pod.name"~=%q`, container,
			"^"+podPrefix))
	if err != nil || out == "" {
		return nil, err
	}
	tasks, err := n.ctr(ctx, "tasks", "list")
	if err != nil {
		return nil, err
	}
	ids := slices.DeleteFunc(strings.Fields(out), func(id string) bool {
		return !regexp.MustCompile(`(?m)^` + id + `\s+\d+\s+RUNNING`).MatchString(tasks)
	})
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		groups, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err != nil {
			continue // the process has ended
		}
		for _, id := range ids {
			if bytes.Contains(groups, []byte(id)) {
				if started, err := StartTime(pid); err == nil {
					found = append(found, Process{pid, started})
				}
				break
			}
		}
	}
	return found, nil
}

// SignalContainer sends a signal to every process of such containers. It is an error if there is none.
func (n *Node) SignalContainer(ctx context.Context, podPrefix, container string, signal syscall.Signal) error {
	found, err := n.Processes(ctx, podPrefix, container)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no container %s of a pod %s… runs on %s", container, podPrefix, n.Name)
	}
	for _, p := range found {
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// StartTime returns when a process began, to 10 ms.
func StartTime(pid int) (time.Time, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return time.Time{}, err
	}
	// The program's name, in brackets, may contain any character.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	const startTime = 22 - 3
	if len(fields) <= startTime {
		return time.Time{}, fmt.Errorf("/proc/%d/stat is short", pid)
	}
	ticks, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, err
	}
	up := time.Duration(now.Nano())
	return time.Now().Add(-up + time.Duration(ticks)*10*time.Millisecond), nil
}
