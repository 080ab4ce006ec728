package publish

import (
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

	last   map[Kind]time.Time   // when each kind was logged
	causes map[string]time.Time // when each cause since the last success was logged
	works  bool                 // the last line was a success
	other  time.Time            // when a write by another server was logged
}

func newWriteLog(fields ...any) writeLog {
	return writeLog{fields: fields, last: map[Kind]time.Time{}, causes: map[string]time.Time{}}
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
	if now.Sub(l.causes[cause]) < logging.CausePeriod || now.Sub(l.last[failed.kind]) < linePeriod {
		return
	}
	if len(l.causes) >= maxCauses {
		clear(l.causes)
	}
	l.causes[cause], l.last[failed.kind], l.works = now, now, false
	klog.ErrorS(failed, "Failed to write reports", append(l.fields, "result", failed.kind)...)
}

// another logs, each CausePeriod, why another API server than the preferred one took a write.
func (l *writeLog) another(failed *failure, now time.Time) {
	if now.Sub(l.other) >= logging.CausePeriod {
		l.other = now
		klog.InfoS("Another API server took the write", append(l.fields, "failed", failed)...)
	}
}
