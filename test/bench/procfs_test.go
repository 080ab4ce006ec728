package bench

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cpuTime returns the CPU time that a process has had, of all its threads and to
// the nanosecond. Threads that have ended are missing; Go's do not end while
// nothing locks a goroutine to one.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		ran, parseErr := parseSchedstat(string(text))
		if err := cmp.Or(err, parseErr); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		sum += ran
	}
	if sum == 0 {
		t.Fatalf("process %d: /proc has no CPU time", pid)
	}
	return sum
}

// parseSchedstat reads the first of the three numbers of
// /proc/<pid>/task/<tid>/schedstat: nanoseconds on a CPU (proc-schedstat in
// the kernel's documentation).
func parseSchedstat(text string) (time.Duration, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return 0, fmt.Errorf("%q is not three numbers", text)
	}
	ns, err := strconv.ParseInt(fields[0], 10, 64)
	return time.Duration(ns), err
}

// memory is what a process has resident, in bytes.
type memory struct {
	all  int64 // VmRSS, with the pages of the binary that were touched
	anon int64 // RssAnon, what is the process's own
	peak int64 // VmHWM, the most that VmRSS ever was
}

func memoryOf(t testing.TB, pid int) memory {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m, err := parseStatus(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// parseStatus reads /proc/<pid>/status, proc_pid_status(5), where kB are 1,024
// bytes.
func parseStatus(text string) (memory, error) {
	found := map[string]int64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name != "VmRSS" && name != "RssAnon" && name != "VmHWM" {
			continue
		}
		kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return memory{}, fmt.Errorf("%s: %w", name, err)
		}
		found[name] = kB << 10
	}
	if len(found) != 3 {
		return memory{}, errors.New("there is no VmRSS, RssAnon or VmHWM: not a live process's status")
	}
	// The kernel raises VmHWM late.
	return memory{all: found["VmRSS"], anon: found["RssAnon"], peak: max(found["VmHWM"], found["VmRSS"])}, nil
}

// descriptors counts the open file descriptors of a process.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
