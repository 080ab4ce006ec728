package logging

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// Start sends all logging of the process to out, through the Queue that it returns.
// It must be called before other goroutines log: klog's and gRPC's loggers are
// global and unguarded. klog's flags, registered by klog.InitFlags, keep working
// before and after.
func Start(out io.Writer) *Queue {
	q := NewQueue(out)
	// klog checks -v and --vmodule before it calls its logger, which therefore lets
	// every level through.
	text := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(q), textlogger.Verbosity(math.MaxInt32)))
	klog.SetLoggerWithOptions(logr.New(sink{text.GetSink()}), klog.WriteKlogBuffer(q.writeUnstructured))
	klog.CopyStandardLogTo("WARNING")
	grpclog.SetLoggerV2(grpcLogger{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	return q
}

// writeUnstructured takes an entry of klog.Infof and the like, whose text follows
// klog's header, and quotes the text as klog quotes the message of a structured
// entry.
func (q *Queue) writeUnstructured(entry []byte) {
	end := bytes.Index(entry, []byte("] ")) + len("] ")
	if end < len("] ") { // klog without headers
		end = 0
	}
	header, text := bytes.Clone(entry[:end]), entry[end:]
	_, _ = q.Write(strconv.AppendQuote(header, string(bytes.TrimRight(text, "\n"))))
}

// header begins a line of this package as klog begins its lines.
func header(now time.Time) string {
	return fmt.Sprintf("W%s %7d queue.go:1] ", now.Format("0102 15:04:05.000000"), os.Getpid())
}

// sink is klog's text format without its multi-line blocks: a string that holds a
// newline is quoted like any other.
type sink struct{ logr.LogSink }

func (s sink) Init(info logr.RuntimeInfo) {
	info.CallDepth++ // its own methods
	s.LogSink.Init(info)
}

func (s sink) Info(level int, msg string, keysAndValues ...any) {
	s.LogSink.Info(level, msg, quoteAll(keysAndValues)...)
}

func (s sink) Error(err error, msg string, keysAndValues ...any) {
	if err != nil {
		keysAndValues = append([]any{"err", err}, keysAndValues...)
	}
	s.LogSink.Error(nil, msg, quoteAll(keysAndValues)...)
}

func (s sink) WithValues(keysAndValues ...any) logr.LogSink {
	return sink{s.LogSink.WithValues(quoteAll(keysAndValues)...)}
}

func (s sink) WithName(name string) logr.LogSink { return sink{s.LogSink.WithName(name)} }

func (s sink) WithCallDepth(depth int) logr.LogSink {
	if deeper, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return sink{deeper.WithCallDepth(depth)}
	}
	return s
}

func quoteAll(keysAndValues []any) []any {
	all := make([]any, len(keysAndValues))
	for i, v := range keysAndValues {
		all[i] = v
		if i%2 == 0 {
			continue // a key
		}
		switch v.(type) {
		case slog.Value, interface{ WriteText(*bytes.Buffer) }: // klog has forms for them
		case string, error, fmt.Stringer:
			all[i] = quoted{v}
		}
	}
	return all
}

// quoted is a value that klog asks to format itself, by this method, instead of
// writing one that holds a newline as a block of raw lines.
type quoted struct{ value any }

// WriteText writes the value as strconv.Quote does. fmt recovers from a String method
// that panics.
func (q quoted) WriteText(b *bytes.Buffer) {
	b.Write(strconv.AppendQuote(b.AvailableBuffer(), fmt.Sprint(q.value)))
}

// grpcLogger logs gRPC's errors, which is what gRPC itself would write to stderr.
type grpcLogger struct{ grpclog.LoggerV2 }

func (grpcLogger) Error(args ...any)                 { logGRPC(fmt.Sprint(args...)) }
func (grpcLogger) Errorln(args ...any)               { logGRPC(fmt.Sprintln(args...)) }
func (grpcLogger) Errorf(format string, args ...any) { logGRPC(fmt.Sprintf(format, args...)) }

func logGRPC(text string) {
	klog.ErrorS(nil, "Error in the gRPC library", "text", string(bytes.TrimRight([]byte(text), "\n")))
}
