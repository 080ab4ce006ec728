package publish

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/health"
)

// linePeriod is how often one thing is logged at most.
const linePeriod = time.Minute

// writeLog logs what changes about writes. What alternates is not logged each time: each
// kind of failure once a minute at most, with the number of lines left out, and a
// success only after a failure that was logged.
type writeLog struct {
	fields []any // of every line

	last    map[string]time.Time // of each line
	leftOut map[string]int       // of each line since

	previous Kind // how the last write ended
	shown    Kind // what the last line says
	outdated bool // a line says that credentials cannot be used
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

// write logs how a write ended, when that is not what the last line says.
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
	klog.ErrorS(failed, "Writing reports fails; the freshest is tried again", l.with(leftOut, "result", kind)...)
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

// credentials logs when the credential files cannot be used any more, and when they can
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
		klog.InfoS("Credential files cannot be used; the last good ones are", l.with(leftOut, "why", health.CleanDetail(err.Error()))...)
	}
}

// with returns the fields of a line.
func (l *writeLog) with(leftOut int, more ...any) []any {
	if leftOut > 0 {
		more = append(more, "linesLeftOut", leftOut)
	}
	return append(more, l.fields...)
}
