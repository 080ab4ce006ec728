package publish

import (
	"fmt"
	"net/http"
	"slices"
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
	log := writeLog{last: map[string]time.Time{}}
	now, seen := noon, 0
	alternating := slices.Repeat([]Kind{ServerError, Throttled}, 10)
	for _, step := range []struct {
		when   string
		writes []Kind
		want   []string // lines
	}{
		{"success is logged once", []Kind{Success, Success}, []string{"Writing reports works"}},
		{"a failure, and its end", []Kind{Unreachable, Unreachable, Success, Success}, []string{"a unreachable", "works"}},
		{"the same within a minute", []Kind{Unreachable, Success, Unreachable, Success}, nil},
		{"kinds that alternate", alternating, []string{"a server_error", "a throttled"}},
		{"a minute later", append([]Kind{""}, alternating...), []string{"a server_error", "a throttled"}},
		{"the end of that", []Kind{Success}, []string{"works"}},
		{"a failure that is not logged yet", []Kind{Throttled}, nil},
		{"but when it lasts", []Kind{"", Throttled, Throttled}, []string{"a throttled"}},
	} {
		for _, kind := range step.writes {
			switch kind {
			case "":
				now = now.Add(linePeriod)
			case Success:
				log.write(kind, nil, now)
			default:
				log.write(kind, &failure{kind: kind, err: fmt.Errorf("a %s", kind)}, now)
			}
			now = now.Add(time.Second)
		}
		got := lines()[seen:]
		seen += len(got)
		if !slices.EqualFunc(got, step.want, strings.Contains) {
			t.Errorf("%s: %q, want %q", step.when, got, step.want)
		}
	}
}
