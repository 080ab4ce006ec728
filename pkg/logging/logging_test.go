package logging

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/test/harness/must"
)

const waitLimit = 10 * time.Second

// buffer is a writer that may fail. It is used while the Queue that writes to it is flushed.
type buffer struct {
	bytes.Buffer
	err error
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return b.Buffer.Write(p)
}

// take returns what was written since the last call.
func (b *buffer) take(q *Queue) string {
	q.Flush(waitLimit)
	defer b.Reset()
	return b.String()
}

// start calls Start with klog's flags set, and restores the loggers at the end of the test.
func start(t *testing.T, flags ...string) (*Queue, *buffer) {
	t.Helper()
	before := klog.CaptureState()
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	must.Succeed(t, set.Parse(flags))
	out := &buffer{}
	q := Start(out)
	t.Cleanup(func() {
		klog.ClearLogger()
		before.Restore()
		log.SetOutput(os.Stderr)
		grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	})
	return q, out
}

func TestEveryLoggerOfTheProcessWritesEachEntryOnceAsOneLine(t *testing.T) {
	q, out := start(t)
	hostile := "a\nE1122 10:00:00.000000       1 x.go:1] \"forged\"\x1b[2J\u0085\u2028\u202e\xff\x7f end"
	const escaped = `a\\n\\?t?E1122 .*forged\\?"\\x1b\[2J\\u0085\\u2028\\u202e\\xff\\x7f end`
	for name, c := range map[string]struct {
		log  func()
		want string // a regular expression
	}{
		"structured value":  {func() { klog.InfoS("Message", "key", hostile) }, `^I.* logging_test\.go:\d+\] "Message" key=.*` + escaped},
		"value of one line": {func() { klog.InfoS("Message", "key", `a "b"`, "n", 7) }, `^I.* logging_test\.go:\d+\] "Message" key="a \\"b\\"" n=7\n$`},
		"structured error":  {func() { klog.ErrorS(errors.New(hostile), "Message") }, `^E.* logging_test\.go:\d+\] "Message" err=.*` + escaped},
		"message":           {func() { klog.InfoS(hostile) }, `^I.*\] "` + escaped},
		"contextual":        {func() { klog.Background().WithName("n").WithValues("k", hostile).Info("Message") }, `^I.* logging_test\.go:\d+\] "Message" logger="n" k=.*` + escaped},
		"unstructured":      {func() { klog.Warningf("text %s", hostile) }, `^W.* logging_test\.go:\d+\] text ` + escaped},
		"standard log":      {func() { log.Printf("text %s", hostile) }, `^W.* logging_test\.go:\d+\] text ` + escaped},
		"slog":              {func() { slog.Warn("text", "key", hostile) }, `^W.*WARN text key="a\\nE1122 `},
		"gRPC":              {func() { grpclog.Errorf("text %s", hostile) }, `^.*ERROR: text ` + escaped},
	} {
		c.log()
		line, end := strings.CutSuffix(out.take(q), "\n")
		if !end || strings.Contains(line, "\n") || !regexp.MustCompile(c.want).MatchString(line+"\n") {
			t.Errorf("%s: %q\nwant one line, %s", name, line, c.want)
		}
		for _, r := range line {
			if r < ' ' || r >= 0x7f {
				t.Errorf("%s: raw %U in %q", name, r, line)
			}
		}
	}
}

func TestVerbosityFlagsKeepWorking(t *testing.T) {
	for flags, want := range map[string]int{"-v=0": 0, "-v=4": 2, "-vmodule=logging_test=4": 2, "-vmodule=other=9": 0} {
		t.Run(flags, func(t *testing.T) {
			q, out := start(t, "-v=0", "-vmodule=", flags)
			klog.V(4).InfoS("Direct")
			klog.Background().V(4).Info("Contextual")
			klog.V(5).InfoS("Never")
			if text := out.take(q); strings.Count(text, "\n") != want {
				t.Errorf("%s, want %d lines", text, want)
			}
		})
	}
}

// An unread pipe holds 64 KiB; writing more blocks the writer.
func TestLoggingDoesNotBlockOnAPipeThatIsNotRead(t *testing.T) {
	r, w, err := os.Pipe()
	must.Succeed(t, err)
	q := newQueue(w)
	const entries = 5000
	for range entries {
		_, _ = q.Write([]byte(strings.Repeat("x", 999)))
	}
	q.Flush(10 * time.Millisecond) // returns
	if n := q.bytes.Load(); n > maxBytes {
		t.Errorf("%d bytes wait", n)
	}

	// Once the pipe is read again, the waiting entries are written, and the number of dropped ones.
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		read <- string(all)
	}()
	q.Flush(waitLimit)
	_ = w.Close()
	text := <-read
	dropped, kept := 0, strings.Count(text, strings.Repeat("x", 999)+"\n")
	// One line, or several if the writer wrote between the entries.
	for _, line := range regexp.MustCompile(`"Dropped log lines: .* count=(\d+)`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(line[1])
		dropped += n
	}
	if kept+dropped != entries || kept < maxBytes/1000 {
		t.Errorf("%d kept, %d dropped, of %d", kept, dropped, entries)
	}
}

func TestWriteErrorsAreCounted(t *testing.T) {
	out := &buffer{err: os.ErrClosed}
	q := newQueue(out)
	for range 3 {
		_, _ = q.Write([]byte("lost"))
	}
	q.Flush(waitLimit)
	out.err = nil
	_, _ = q.Write([]byte("kept"))
	if text := out.take(q); !strings.HasPrefix(text, "kept\nW") || !strings.HasSuffix(text, "count=3\n") {
		t.Errorf("%q", text)
	}
}

func TestLongEntryIsCut(t *testing.T) {
	line := string(escape([]byte(strings.Repeat("\xff", maxEntry+100000))))
	if len(line) > 64<<10 || !strings.HasSuffix(line, `\xff\xff …(100000 bytes more)`+"\n") {
		t.Errorf("%d bytes, %q", len(line), line[len(line)-40:])
	}
}
