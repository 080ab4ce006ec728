package publish

import (
	"time"

	"k8s.io/klog/v2"
)

// linePeriod is the shortest time between two log lines of the same kind.
const linePeriod = time.Minute

// writeLog logs changes in the results of writes: each kind of failure at most once a
// minute, and a success only after a failure that was logged.
type writeLog struct {
	fields []any // of every line, with no room for more

	last  map[string]time.Time // when each line was logged
	shown Kind                 // the result in the last line
	used  string               // the server of the last write that succeeded
}

func (l *writeLog) allow(line string, now time.Time) bool {
	if at, logged := l.last[line]; logged && now.Sub(at) < linePeriod {
		return false
	}
	l.last[line] = now
	return true
}

// write logs the result of a write, if it differs from the last line.
func (l *writeLog) write(kind Kind, failed *failure, now time.Time) {
	switch {
	case kind == l.shown:
		return
	case kind == Success:
		klog.InfoS("Writing reports works", l.fields...)
	case kind == AtomicList:
		klog.ErrorS(failed, "Failed to write reports; nothing more is written to this resource",
			append(l.fields, "result", kind)...)
	case l.allow(string(kind), now):
		klog.ErrorS(failed, "Failed to write reports; retrying with the latest", append(l.fields, "result", kind)...)
	default:
		return
	}
	l.shown = kind
}

// server logs which server took a write, where it is another one than before, or not the preferred
// one at first.
func (l *writeLog) server(server string, fallback bool, failures []*failure, now time.Time) {
	previous := l.used
	l.used = server
	if server == previous || previous == "" && !fallback || !l.allow("server "+server, now) {
		return
	}
	why := "it works again"
	if len(failures) > 0 {
		why = failures[0].Error()
	}
	klog.InfoS("Writing reports through another API server",
		append(l.fields, "server", server, "previous", previous, "why", why)...)
}
