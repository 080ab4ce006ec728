// Package logging writes a process's log so that neither its reader nor the logged text can harm the process or log.
//
// It never blocks: when the reader of stderr stops reading, entries beyond a bound are dropped, and counted when it
// reads again. One entry is one line of at most 64 KiB, whose control characters, line separators, bidirectional
// controls and invalid UTF-8 are escaped: no value can forge a line or control a terminal. This applies to klog (with
// -v and --vmodule), the standard log package, log/slog's default logger, and gRPC's errors, but not to a crash.
package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

const (
	maxEntry   = 16<<10 - 64 // bytes of an entry; escaping makes up to four of each
	maxEntries = 1024        // how many entries may wait to be written
	maxBytes   = 256 << 10   // bytes of the entries that may wait, escaped
)

// Start sends all logging of the process to out, through the Queue that it returns. It must be called before other
// goroutines log: klog's and gRPC's loggers are global and unguarded. klog's flags keep working before and after.
func Start(out io.Writer) *Queue {
	q := newQueue(out)
	// klog checks -v and --vmodule before it calls its logger, which therefore lets every level through.
	text := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(q), textlogger.Verbosity(math.MaxInt32)))
	klog.SetLoggerWithOptions(text, klog.WriteKlogBuffer(func(entry []byte) { _, _ = q.Write(entry) }))
	klog.CopyStandardLogTo("WARNING")
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, q))
	return q
}

// Queue is an io.Writer that takes one log entry per Write, and writes it as a line, in a goroutine, to another writer.
type Queue struct {
	out     io.Writer
	todo    chan func()  // writes of lines
	bytes   atomic.Int64 // of the lines that wait
	dropped atomic.Int64 // entries that were dropped since the last line about dropped ones
}

func newQueue(out io.Writer) *Queue {
	q := &Queue{out: out, todo: make(chan func(), maxEntries)}
	go func() {
		for do := range q.todo {
			do()
		}
	}()
	return q
}

// Write adds an entry. It never blocks and never fails: an entry for which there is no room is dropped and counted.
func (q *Queue) Write(entry []byte) (int, error) {
	text := escape(entry)
	if q.bytes.Add(int64(len(text))) <= maxBytes {
		select {
		case q.todo <- func() { q.write(text) }:
			return len(entry), nil
		default:
		}
	}
	q.bytes.Add(-int64(len(text)))
	q.dropped.Add(1)
	return len(entry), nil
}

func (q *Queue) write(text []byte) {
	q.bytes.Add(-int64(len(text)))
	if _, err := q.out.Write(text); err != nil {
		q.dropped.Add(1)
	} else if n := q.dropped.Swap(0); n > 0 {
		const line = "W%s %7d logging.go:1] \"Dropped log lines: they were not read or could not be written\" count=%d\n"
		_, _ = fmt.Fprintf(q.out, line, time.Now().Format("0102 15:04:05.000000"), os.Getpid(), n)
	}
}

// Flush waits until everything is written, for at most the given time.
func (q *Queue) Flush(limit time.Duration) {
	ctx, done := context.WithTimeout(context.Background(), limit)
	defer done()
	select {
	case q.todo <- done: // after all that wait
		<-ctx.Done()
	case <-ctx.Done():
	}
}

// CausePeriod is how often a lasting cause is logged again: errors of one cause may name other nodes.
const CausePeriod = 10 * time.Minute

// Cause is what two errors have in common that differ in numbers, ports, times or IDs alone: the words without a digit.
func Cause(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
	return strings.Join(words, " ")
}

// unquote undoes what strconv.Quote does to quotes and backslashes: klog quotes values itself.
var unquote = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// escape returns an entry as a line: cut to maxEntry, with one newline at its end.
func escape(entry []byte) []byte {
	entry = bytes.TrimRight(entry, "\n")
	more := ""
	if cut := len(entry) - maxEntry; cut > 0 {
		entry, more = entry[:maxEntry], fmt.Sprintf(" …(%d bytes more)", cut)
	}
	quoted := strconv.Quote(string(entry))
	return []byte(unquote.Replace(quoted[1:len(quoted)-1]) + more + "\n")
}
