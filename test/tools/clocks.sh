#!/usr/bin/env bash
# Makes an overlay of Go's own package time, for programs whose clock is to be wrong.
#
#   clocks.sh DIR
#
# A program that is built with GOFLAGS=-overlay=DIR/overlay.json adds the seconds of the environment
# variable CLOCK_AHEAD to each time.Now. What measures durations (monotonic readings, timers) stays
# right, as after a wrong setting of a machine's clock.
set -euo pipefail

mkdir -p "$1/time"
dir=$(cd "$1" && pwd)
original=$(go env GOROOT)/src/time
sed 's/^\tsec, nsec, mono := runtimeNow()$/&\n\tsec += ahead/' "$original/time.go" >"$dir/time/time.go"
if [ "$(grep -c '^	sec += ahead$' "$dir/time/time.go")" != 1 ]; then
	echo "error: time.Now of $original/time.go is not as this script knows it" >&2
	exit 1
fi
cat >"$dir/time/ahead.go" <<'GO'
package time

import "syscall"

var ahead = func() int64 {
	text, _ := syscall.Getenv("CLOCK_AHEAD")
	seconds, _ := atoi(text)
	return int64(seconds)
}()
GO
cat >"$dir/overlay.json" <<JSON
{"Replace": {"$original/time.go": "$dir/time/time.go", "$original/ahead.go": "$dir/time/ahead.go"}}
JSON
