package publish

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

func TestFailuresOfAlternatingKindsBackOff(t *testing.T) {
	s := newServer(t)
	times, n := make(chan time.Time, 100), 0
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		times <- time.Now()
		http.Error(w, "", []int{401, 503}[n%2])
		n++
	})
	p := run(t, credentialFiles(t, s), waitLimit)
	p.offer("1")
	var last time.Time
	for i, want := range []time.Duration{0, firstDelay, firstDelay, 2 * firstDelay, 2 * firstDelay, 4 * firstDelay} {
		now := <-times
		if got := now.Sub(last); got < want {
			t.Errorf("write %d came %s after the one before, want at least %s", i+1, got, want)
		}
		last = now
	}
}

// logLines returns what is logged during the test.
func logLines(t *testing.T) func() []string {
	var mu sync.Mutex
	var lines []string
	restore := klog.CaptureState().Restore
	t.Cleanup(restore)
	klog.SetLogger(funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{}))
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return lines
	}
}

func TestEachKindOfFailureIsLoggedOnceAMinute(t *testing.T) {
	lines := logLines(t)
	var log writeLog
	now := noon
	write := func(kinds ...Kind) {
		for _, kind := range kinds {
			var failed *failure
			if kind != Success {
				failed = &failure{kind: kind, err: fmt.Errorf("a %s", kind)}
			}
			log.write(kind, failed, now)
			now = now.Add(time.Second)
		}
	}
	check := func(when string, want ...string) {
		t.Helper()
		got := lines()
		if len(got) != len(want) {
			t.Fatalf("%s: %d lines, want %d: %q", when, len(got), len(want), got)
		}
		for i, text := range want {
			if !strings.Contains(got[i], text) {
				t.Errorf("%s: line %d is %s, want %s", when, i, got[i], text)
			}
		}
	}
	want := []string{"Writing reports works"}
	write(Success, Success)
	check("success is logged once", want...)

	want = append(want, "a unreachable", "works")
	write(Unreachable, Unreachable, Unreachable, Success, Success)
	check("a failure, and its end", want...)

	write(Unreachable, Success, Unreachable, Success)
	check("the same within a minute", want...)

	want = append(want, "a server_error", "a throttled")
	for range 10 {
		write(ServerError, Throttled)
	}
	check("kinds that alternate", want...)

	now = now.Add(linePeriod)
	want = append(want, "a server_error", "a throttled")
	for range 10 {
		write(ServerError, Throttled)
	}
	check("a minute later", want...)

	want = append(want, "works")
	write(Success)
	check("the end of that", want...)

	write(Throttled)
	check("a failure that is not logged yet", want...)
	now = now.Add(linePeriod)
	want = append(want, "a throttled")
	write(Throttled, Throttled)
	check("but when it lasts", want...)
}
