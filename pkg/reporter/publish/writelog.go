package publish

import (
	"cmp"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/logging"
)

const (
	linePeriod = time.Minute // the shortest time between two log lines on the same kind of failure
	maxCauses  = 16          // how many are remembered
)

// writeLog logs changes in the results of writes: each cause of a failure once and then every
// logging.CausePeriod, at most one of each kind in a linePeriod, and a success only after a failure that was logged.
type writeLog struct {
	fields []any // of every line; without spare capacity, so that append copies it

	last   map[string]time.Time // when each line was logged, by kind or server
	causes map[string]time.Time // when each cause since the last success was logged
	works  bool                 // the last line was a success
	used   string               // the server in the last line about one
}

func newWriteLog(fields ...any) writeLog {
	return writeLog{fields: fields, last: map[string]time.Time{}, causes: map[string]time.Time{}}
}

func (l *writeLog) allow(line string, now time.Time) bool {
	if now.Sub(l.last[line]) < linePeriod {
		return false
	}
	l.last[line] = now
	return true
}

// write logs the result of a write, unless that was logged.
func (l *writeLog) write(failed *failure, now time.Time) {
	if failed == nil {
		if !l.works {
			klog.InfoS("Writing reports works", l.fields...)
		}
		l.works = true
		clear(l.causes)
		return
	}
	cause := string(failed.kind) + " " + logging.Cause(failed.Error())
	if now.Sub(l.causes[cause]) < logging.CausePeriod || !l.allow(string(failed.kind), now) {
		return
	}
	if len(l.causes) >= maxCauses {
		clear(l.causes)
	}
	l.causes[cause], l.works = now, false
	klog.ErrorS(failed, "Failed to write reports", append(l.fields, "result", failed.kind)...)
}

// server logs which server accepted a write, if it is not the one in the last line, at first the preferred one.
// Without a failure, another server than the preferred one is not logged: why that is tried last is not known then.
func (l *writeLog) server(server, preferred string, failures []*failure, now time.Time) {
	previous := cmp.Or(l.used, preferred)
	if server == previous || server != preferred && len(failures) == 0 || !l.allow("server "+server, now) {
		return
	}
	l.used = server
	why := "it works again"
	if len(failures) > 0 {
		why = failures[0].Error()
	}
	klog.InfoS("Writing reports through another API server",
		append(l.fields, "server", server, "previous", previous, "why", why)...)
}
