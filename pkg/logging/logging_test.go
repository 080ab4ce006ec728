package logging

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// buffer is a writer that may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	err  error
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	return b.text.Write(p)
}

func (b *buffer) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.SplitAfter(strings.TrimSuffix(b.text.String(), "\n"), "\n")
}

// start calls Start with klog's flags set, and restores the loggers at the end of the test.
func start(t *testing.T, flags ...string) (*Queue, *buffer) {
	t.Helper()
	before := klog.CaptureState()
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	out := &buffer{}
	q := Start(out)
	t.Cleanup(func() {
		q.Flush(patience)
		klog.ClearLogger()
		before.Restore()
		log.SetOutput(os.Stderr)
		grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	})
	return q, out
}

func logged(t *testing.T, q *Queue, out *buffer) []string {
	t.Helper()
	if !q.Flush(patience) {
		t.Fatal("the log was not written")
	}
	return out.lines()
}

func TestEveryLoggerOfTheProcessWritesEachEntryOnceAsOneLine(t *testing.T) {
	q, out := start(t)
	hostile := "a\nE1122 10:00:00.000000       1 x.go:1] \"forged\"\x1b[2J\u0085\u2028\u202e\xff\x7f end"
	for name, c := range map[string]struct {
		log  func()
		want string // a regular expression
	}{
		"structured value":   {func() { klog.InfoS("Message", "key", hostile) }, `^I.* logging_test\.go:\d+\] "Message" key="a\\nE1122 .*\\"forged\\"\\x1b\[2J\\u0085\\u2028\\u202e\\xff\\x7f end"\n?$`},
		"structured error":   {func() { klog.ErrorS(errors.New(hostile), "Message") }, `^E.* logging_test\.go:\d+\] "Message" err="a\\nE1122 `},
		"message":            {func() { klog.InfoS(hostile) }, `^I.*\] "a\\nE1122 `},
		"a Stringer":         {func() { klog.InfoS("Message", "key", stringer(hostile)) }, `^I.*\] "Message" key="a\\nE1122 `},
		"a Stringer's panic": {func() { klog.InfoS("Message", "key", (*panics)(nil)) }, `^I.*\] "Message" key="<nil>"`},
		"a JSON value":       {func() { klog.InfoS("Message", "key", []string{hostile}) }, `^I.*\] "Message" key=\["a\\nE1122 .*end"\]\n?$`},
		"an object":          {func() { klog.InfoS("Message", "key", klog.KRef("a", "b")) }, `^I.*\] "Message" key="a/b"\n?$`},
		"contextual":         {func() { klog.Background().WithName("n").WithValues("k", hostile).Info("Message") }, `^I.* logging_test\.go:\d+\] "Message" logger="n" k="a\\nE1122 `},
		"unstructured":       {func() { klog.Warningf("text %s", hostile) }, `^W.* logging_test\.go:\d+\] "text a\\nE1122 .*\\"forged\\"`},
		"standard log":       {func() { log.Printf("text %s", hostile) }, `^W.* logging_test\.go:\d+\] "text a\\nE1122 `},
		"slog":               {func() { slog.Warn("text", "key", hostile) }, `^W.*\] ".*WARN text key=\\"a\\\\nE1122 `},
		"gRPC":               {func() { grpclog.Errorf("text %s", hostile) }, `^E.*\] "Error in the gRPC library" text="text a\\nE1122 `},
		"gRPC's component":   {func() { grpclog.Component("core").Errorln("text", hostile) }, `^E.*\] "Error in the gRPC library" text="\[core\] ?text a\\nE1122 `},
	} {
		before := len(logged(t, q, out))
		if out.text.Len() == 0 {
			before = 0
		}
		c.log()
		lines := logged(t, q, out)[before:]
		if len(lines) != 1 {
			t.Errorf("%s: %d lines, want 1: %q", name, len(lines), lines)
			continue
		}
		if !regexp.MustCompile(c.want).MatchString(lines[0]) {
			t.Errorf("%s: %q\nwant %s", name, lines[0], c.want)
		}
		for _, r := range strings.TrimSuffix(lines[0], "\n") {
			if r < ' ' || r == 0x7f || r >= 0x80 {
				t.Errorf("%s: raw %U in %q", name, r, lines[0])
			}
		}
	}
}

type stringer string

func (s stringer) String() string { return string(s) }

type panics struct{ text string }

func (p *panics) String() string { return p.text }

func TestLinesHaveTheFormThatKlogGivesThem(t *testing.T) {
	q, out := start(t)
	klog.InfoS("Message", "text", "a b", "number", 7, "list", []int{1}, "err", errors.New("e"))
	klog.Infof("%d", 7)
	header := `^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] `
	for i, want := range []string{header + `"Message" text="a b" number=7 list=\[1\] err="e"\n$`, header + `"7"$`} {
		if line := logged(t, q, out)[i]; !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("%q, want %s", line, want)
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
			logged(t, q, out)
			if got := strings.Count(out.text.String(), "\n"); got != want {
				t.Errorf("%d lines, want %d: %s", got, want, out.text.String())
			}
		})
	}
}

// An unread pipe holds 64 KiB; writing more blocks the writer.
func TestLoggingDoesNotBlockOnAPipeThatIsNotRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	q := NewQueue(w)
	entry := []byte(strings.Repeat("x", 999) + "\n")
	const entries = 5000
	began := time.Now()
	for range entries {
		if n, err := q.Write(entry); n != len(entry) || err != nil {
			t.Fatal(n, err)
		}
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("%d entries took %s", entries, took)
	}
	if q.Flush(10 * time.Millisecond) {
		t.Error("Flush reports that everything is written to a pipe that is not read")
	}
	q.mu.Lock()
	if q.bytes > maxBytes || len(q.waiting) > maxEntries {
		t.Errorf("%d entries of %d bytes wait", len(q.waiting), q.bytes)
	}
	q.mu.Unlock()

	// Once it is read again, the queued entries are written, then the number of dropped ones.
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		read <- string(all)
	}()
	if !q.Flush(patience) {
		t.Fatal("not written although it is read")
	}
	_, _ = q.Write([]byte("after"))
	if !q.Flush(patience) {
		t.Fatal("not written although it is read")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(<-read, "\n"), "\n")
	kept, dropped := 0, 0
	for _, line := range lines {
		var n int
		if line == strings.Repeat("x", 999) {
			kept++
		} else if _, counted, found := strings.Cut(line, `"Dropped log lines: they were not read or could not be written" count=`); found {
			if _, err := fmt.Sscan(counted, &n); err != nil {
				t.Error(err)
			}
			dropped += n
		} else if line != "after" {
			t.Errorf("unexpected line %.100q", line)
		}
	}
	if kept+dropped != entries || dropped == 0 || kept < maxBytes/1000 {
		t.Errorf("%d kept, %d dropped, of %d", kept, dropped, entries)
	}
	if lines[len(lines)-1] != "after" {
		t.Errorf("the last line is %.100q", lines[len(lines)-1])
	}
}

func TestWriteErrorIsSurvivedAndCounted(t *testing.T) {
	out := &buffer{}
	q := NewQueue(out)
	out.fail(os.ErrClosed)
	for range 3 {
		_, _ = q.Write([]byte("lost"))
	}
	if !q.Flush(patience) {
		t.Fatal("writes that fail hold up the queue")
	}
	out.fail(nil)
	_, _ = q.Write([]byte("kept"))
	lines := logged(t, q, out)
	if len(lines) != 2 || lines[0] != "kept\n" || !strings.HasSuffix(lines[1], "count=3") {
		t.Errorf("%q", lines)
	}
}

func TestClosedReaderDoesNotStopLogging(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer func() { _ = w.Close() }()
	q := NewQueue(w)
	for range 10 {
		_, _ = q.Write([]byte("not read"))
	}
	if !q.Flush(patience) {
		t.Error("writes that fail hold up the queue")
	}
}

func TestLongEntryIsCut(t *testing.T) {
	for name, c := range map[string]struct{ unit, tail string }{
		"plain":   {"x", "xx …(100000 bytes more)\n"},
		"escaped": {"\xff", `\xff\xff …(100000 bytes more)` + "\n"},
	} {
		line := escapeLine([]byte(strings.Repeat(c.unit, maxEntry+100000)))
		if len(line) > 64<<10 || !strings.HasSuffix(string(line), c.tail) {
			t.Errorf("%s: %d bytes, %q", name, len(line), line[len(line)-40:])
		}
	}
}
