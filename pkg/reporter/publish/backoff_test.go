package publish

import (
	"errors"
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
	times, n := make(chan time.Time, 100), 0
	reportTo(t, func(w http.ResponseWriter, _ *http.Request) {
		times <- time.Now()
		http.Error(w, "", []int{401, 503}[n%2])
		n++
	}, waitLimit)
	var last time.Time
	for i, want := range []time.Duration{0, firstDelay, firstDelay, 2 * firstDelay, 2 * firstDelay, 4 * firstDelay} {
		now := <-times
		if got := now.Sub(last); got < want {
			t.Errorf("write %d came %s after the one before, want at least %s", i+1, got, want)
		}
		last = now
	}
}

// logLines records the log of the test.
func logLines(t *testing.T) func() []string {
	var mu sync.Mutex
	var lines []string
	restore := klog.CaptureState().Restore
	t.Cleanup(restore)
	klog.SetLogger(funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, args)
	}, funcr.Options{Verbosity: 4})) // by -v, klog leaves out more
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return lines
	}
}

func TestEachCauseOfAFailureIsLoggedOnceAndEveryTenMinutes(t *testing.T) {
	lines := logLines(t)
	log := newWriteLog()
	now, seen := noon, 0
	// A result is a kind and a text, a pause, or "" for a success.
	role, policy := "forbidden: no RBAC policy matched", "forbidden: ValidatingAdmissionPolicy 'x' denied request"
	varying := func(n int) string {
		return fmt.Sprintf("unreachable: read tcp 10.0.0.1:%d->10.0.0.2:6443 at %s, ID %x", 40_000+n, noon.Add(time.Duration(n)*time.Hour), n*n+1<<40)
	}
	for _, step := range []struct {
		when    string
		results []string
		want    []string // lines
	}{
		{"success is logged once", []string{"", ""}, []string{"Writing reports works"}},
		{"a failure, and its end", []string{role, role, "", ""}, []string{role, "works"}},
		{"the same within a minute", []string{role, "", role, ""}, nil},
		{"later", []string{"1m", role, role}, []string{role}},
		{"another cause of this kind, within a minute", []string{policy}, nil},
		{"but when it lasts", []string{"1m", policy, role, policy}, []string{policy}},
		{"each of them in the next nine minutes", []string{"8m", role, policy, role, policy}, nil},
		{"after ten minutes", []string{"1m", role, policy, "1m", role, policy}, []string{role, policy}},
		{"the end of that", []string{""}, []string{"works"}},
		{"kinds that alternate", slices.Repeat([]string{"server_error: a", "throttled: a"}, 10), []string{"server_error: a", "throttled: a"}},
		{"a minute later", slices.Repeat([]string{"1m", "server_error: a", "throttled: a"}, 3), nil},
		{"ports, times and IDs are no causes", []string{varying(1), "1m", varying(2), "1m", varying(3)}, []string{varying(1)}},
	} {
		for _, result := range step.results {
			kind, _, _ := strings.Cut(result, ":")
			if pause, err := time.ParseDuration(result); err == nil {
				now = now.Add(pause)
			} else if result == "" {
				log.write(nil, now)
			} else {
				log.write(&failure{kind: Kind(kind), err: errors.New(result)}, now)
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

// A proxy might put a different text into each answer.
func TestCausesWithoutEndAreALineAMinuteAndBoundedMemory(t *testing.T) {
	lines := logLines(t)
	log := newWriteLog()
	for i := range 3600 {
		words := strings.Map(func(r rune) rune { return r + 'a' - '0' }, fmt.Sprint(i))
		log.write(&failure{kind: ServerError, err: errors.New(words)}, noon.Add(time.Duration(i)*time.Second))
	}
	if n := len(lines()); n != 60 || len(log.causes) > maxCauses {
		t.Errorf("%d lines in an hour, want 60; %d causes are remembered", n, len(log.causes))
	}
}
