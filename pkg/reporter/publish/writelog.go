package publish

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/health"
)

// linePeriod is the shortest time between two log lines of the same kind.
const linePeriod = time.Minute

// writeLog logs changes in the results of writes: each kind of failure at most once a
// minute, with the number of lines left out, and a success only after a failure that was
// logged.
type writeLog struct {
	fields []any // of every line

	last    map[string]time.Time // of each line
	leftOut map[string]int       // of each line since

	previous Kind // how the last write ended
	shown    Kind // the result in the last line
	outdated bool // the last line reported invalid credentials
}

// allow reports whether a line may be logged, and if so how many were left out before.
func (l *writeLog) allow(line string, now time.Time) (leftOut int, ok bool) {
	if l.last == nil {
		l.last, l.leftOut = map[string]time.Time{}, map[string]int{}
	}
	if at, logged := l.last[line]; logged && now.Sub(at) < linePeriod {
		return 0, false
	}
	leftOut = l.leftOut[line]
	l.last[line], l.leftOut[line] = now, 0
	return leftOut, true
}

// write logs the result of a write, if it differs from the last line.
func (l *writeLog) write(kind Kind, failed *failure, now time.Time) {
	changed := kind != l.previous
	l.previous = kind
	if kind == Success {
		if l.shown != Success {
			l.shown = Success
			klog.InfoS("Writing reports works", l.fields...)
		}
		return
	}
	if !changed && kind == l.shown {
		return
	}
	leftOut, ok := l.allow(string(kind), now)
	if !ok {
		if changed {
			l.leftOut[string(kind)]++
		}
		return
	}
	l.shown = kind
	klog.ErrorS(failed, "Failed to write reports; retrying with the latest", l.with(leftOut, "result", kind)...)
}

// server logs a change of server.
func (l *writeLog) server(server, previous, why string, now time.Time) {
	line := "server " + server
	leftOut, ok := l.allow(line, now)
	if !ok {
		l.leftOut[line]++
		return
	}
	klog.InfoS("Writing reports through another API server", l.with(leftOut, "server", server, "previous", previous, "why", why)...)
}

// credentials logs when the credential files become invalid, and when they are valid
// again.
func (l *writeLog) credentials(err error, now time.Time) {
	if err == nil {
		if l.outdated {
			l.outdated = false
			klog.InfoS("Credential files can be used again", l.fields...)
		}
		return
	}
	if l.outdated {
		return
	}
	if leftOut, ok := l.allow("credentials", now); ok {
		l.outdated = true
		klog.InfoS("Credential files cannot be used; the last valid ones stay in use", l.with(leftOut, "why", health.CleanDetail(err.Error()))...)
	}
}

// with returns the fields of a line.
func (l *writeLog) with(leftOut int, more ...any) []any {
	if leftOut > 0 {
		more = append(more, "linesLeftOut", leftOut)
	}
	return append(more, l.fields...)
}
