package publish

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
)

// linePeriod is the shortest time between two log lines of the same kind.
const linePeriod = time.Minute

// writeLog logs changes in the results of writes: each kind of failure at most once a
// minute, and a success only after a failure that was logged.
type writeLog struct {
	fields []any // of every line

	last     map[string]time.Time // when each line was logged
	shown    Kind                 // the result in the last line
	outdated bool                 // the last line reported invalid credentials
	used     string               // the server of the last write that succeeded
}

// allow reports whether a line may be logged.
func (l *writeLog) allow(line string, now time.Time) bool {
	if at, logged := l.last[line]; logged && now.Sub(at) < linePeriod {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
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
		klog.ErrorS(failed, "Failed to write reports; nothing more is written to this resource", l.with("result", kind)...)
	case l.allow(string(kind), now):
		klog.ErrorS(failed, "Failed to write reports; retrying with the latest", l.with("result", kind)...)
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
	klog.InfoS("Writing reports through another API server", l.with("server", server, "previous", previous, "why", why)...)
}

// credentials logs when the credential files become invalid, and when they are valid
// again.
func (l *writeLog) credentials(err error, now time.Time) {
	switch {
	case err == nil && l.outdated:
		klog.InfoS("Credential files can be used again", l.fields...)
	case err != nil && !l.outdated && l.allow("credentials", now):
		klog.InfoS("Credential files cannot be used; the last valid ones stay in use",
			l.with("why", contract.CleanDetail(err.Error()))...)
	default:
		return
	}
	l.outdated = err != nil
}

// with returns the fields of a line.
func (l *writeLog) with(more ...any) []any { return append(more, l.fields...) }
