package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/test/harness/wait"
)

// cgroupParent is where containerd puts the cgroups of its containers, in each
// hierarchy. A containerd of the host's own does the same.
const cgroupParent = "k8s.io"

var containerCgroup = regexp.MustCompile(`/` + cgroupParent + `/([0-9a-f]{64})`)

// containerIDs are those of the containers that run in the node, by their processes: it
// does not need its container runtime.
func (n *Node) containerIDs() []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	parents := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// The name, in brackets, may hold anything; the state and the parent follow.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	first := n.PID()
	seen := map[string]bool{}
	var ids []string
	for pid := range parents {
		for up := pid; up > 1; up = parents[up] {
			if up != first {
				continue
			}
			groups, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
			for line := range bytes.Lines(groups) {
				if match := containerCgroup.FindSubmatch(line); len(match) == 2 && !seen[string(match[1])] {
					seen[string(match[1])] = true
					ids = append(ids, string(match[1]))
				}
			}
			break
		}
	}
	return ids
}

// removeCgroups removes those of containers that have ended, and the folders above them
// where no other process uses them.
func removeCgroups(containers []string) error {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupParent)
	unified, _ := filepath.Glob("/sys/fs/cgroup/" + cgroupParent)
	var errs []error
	for _, root := range append(roots, unified...) {
		for _, id := range containers {
			errs = append(errs, removeCgroup(filepath.Join(root, id)))
		}
		_ = unix.Rmdir(root)
	}
	return errors.Join(errs...)
}

// removeCgroup removes a tree of empty cgroups, whose files cannot be removed.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// A cgroup is busy for a moment after its last process has ended.
	return wait.For(context.Background(), 10*time.Second, "the end of the cgroup "+dir, func(context.Context) error {
		err := unix.Rmdir(dir)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	})
}
