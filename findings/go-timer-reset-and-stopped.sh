#!/usr/bin/env bash
# Go 1.26.8: a timer that was reset to an earlier time wakes the process at that time, though it was stopped.
#
# The runtime keeps the earliest time to which a timer was reset until that time is over. A timer that was made with the
# same time and stopped is forgotten when the next timer is made. In a process that is idle nearly always, with one
# processor, that is a wake-up for each such timer: in a probe whose timeout is counted in steps it took 8 % of the CPU.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// waits returns how often the threads of this process have waited.
func waits() (all int) {
	files, _ := filepath.Glob("/proc/self/task/*/status")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			var n int
			if _, err := fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &n); err == nil {
				all += n
			}
		}
	}
	return all
}

func made() *time.Timer { return time.AfterFunc(50*time.Millisecond, func() {}) }

func reset() *time.Timer {
	timer := time.AfterFunc(math.MaxInt64, func() {})
	timer.Reset(50 * time.Millisecond)
	return timer
}

// least returns the fewest waits in ten idle periods, each after a timer that was stopped at once.
func least(start func() *time.Timer) int {
	fewest := math.MaxInt
	for range 8 {
		before := waits()
		for range 10 {
			start().Stop()
			time.AfterFunc(time.Minute, func() {}).Stop()
			time.Sleep(200 * time.Millisecond)
		}
		fewest = min(fewest, waits()-before)
	}
	return fewest
}

func main() {
	runtime.GOMAXPROCS(1)
	a, b := least(made), least(reset)
	fmt.Fprintf(os.Stderr, "made with its time: %d waits; reset to it: %d\n", a, b)
	fmt.Println("one more wake-up for each timer that was reset:", b >= a+10)
}
GO
printf 'module finding\n\ngo 1.26.8\n' >go.mod
got=$(GOTOOLCHAIN=go1.26.8 go run .)
want='one more wake-up for each timer that was reset: true'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
