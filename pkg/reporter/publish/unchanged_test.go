package publish

import (
	"net/http"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// taken offers entries, and waits until the publisher has taken the offer.
func (r *running) taken(t *testing.T, entries ...contract.Entry) {
	t.Helper()
	r.Offer(entries)
	await(t, "an offer is taken", func() bool { return len(r.offers) == 0 })
}

func unchangedEvery(t *testing.T, period time.Duration) (*server, *running) {
	s := newServer(t)
	return s, runAs(t, credentialFiles(t, s), func(c *Config) { c.UnchangedEvery.Duration = period })
}

func TestReportThatChangedIsWrittenAtOnceAndAnotherAfterUnchangedEvery(t *testing.T) {
	entry := contract.Entry{KeyID: "1", KEKID: "k", Status: contract.Healthy, LastChecked: noon, Interval: time.Second,
		Since: noon, Socket: "/run/kms-1.sock", RoundTrip: noon, Requested: "a", Reporter: "u-1"}
	for name, tt := range map[string]struct {
		change func(*contract.Entry)
		want   bool // it counts as a change
	}{
		"checked later":          {func(e *contract.Entry) { e.LastChecked = e.LastChecked.Add(time.Minute) }, false},
		"another round trip":     {func(e *contract.Entry) { e.RoundTrip = e.RoundTrip.Add(time.Minute) }, false},
		"a shorter interval":     {func(e *contract.Entry) { e.Interval /= 2 }, false}, // the written interval is UnchangedEvery, which is longer
		"a longer interval":      {func(e *contract.Entry) { e.Interval = time.Hour }, true},
		"another status":         {func(e *contract.Entry) { e.Status = contract.Unhealthy }, true},
		"another detail":         {func(e *contract.Entry) { e.Detail = "sealed" }, true},
		"another reason":         {func(e *contract.Entry) { e.Reason = contract.Timeout }, true},
		"another key":            {func(e *contract.Entry) { e.KEKID = "l" }, true},
		"another key ID":         {func(e *contract.Entry) { e.KeyID = "2" }, true},
		"a request":              {func(e *contract.Entry) { e.Requested = "b" }, true},
		"a lost key":             {func(e *contract.Entry) { e.Lost = []string{"j"} }, true},
		"the status began again": {func(e *contract.Entry) { e.Since = e.Since.Add(time.Minute) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := unchangedEvery(t, time.Minute)
			p.taken(t, entry)
			s.next(t)
			p.waitFor(t, Success, 1)
			next, last := entry, entry
			tt.change(&next)
			p.taken(t, next)
			last.KeyID = "last" // marks the next report
			p.taken(t, last)
			if got := s.next(t).keyIDs[0] != "last"; got != tt.want {
				t.Errorf("it was written: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestUnchangedReportIsWrittenAgainByTheFirstProbeAfterUnchangedEvery(t *testing.T) {
	const every = time.Second
	s, p := unchangedEvery(t, every)
	entry := contract.Entry{KeyID: "1", Status: contract.Healthy, LastChecked: noon, Interval: time.Millisecond}
	began := time.Now()
	p.Offer([]contract.Entry{entry})
	first := s.next(t)
	if got := first.entries[0].Interval; got != every {
		t.Errorf("the interval of the entry is %s, want the longer one, %s", got, every)
	}
	for offers := 0; len(s.requests) == 0; offers++ {
		if offers == 10_000 {
			t.Fatal("it was not written again")
		}
		time.Sleep(2 * time.Millisecond)
		entry.LastChecked = entry.LastChecked.Add(time.Second)
		p.Offer([]contract.Entry{entry})
	}
	if took := time.Since(began); took < every {
		t.Errorf("it was written again after %s, want at least %s", took, every)
	}
}

func TestFailedWriteIsTriedAgainAlsoIfTheReportDidNotChange(t *testing.T) {
	s, p := unchangedEvery(t, time.Minute)
	p.offer("1")
	s.next(t)
	p.waitFor(t, Success, 1)
	s.answers(fails(http.StatusServiceUnavailable)) // the server may have written it all the same
	p.offer("2")
	s.next(t)
	p.waitFor(t, ServerError, 1)
	p.offer("1")
	s.answers(nil)
	p.waitFor(t, Success, 2)
	p.taken(t) // withdraws the report
	p.report(t, "1", Success, 3)
}

// A frozen API server may still execute a request that it did not answer. Then an old report would replace a later one.
func TestEachResultIsWrittenUntilAServerThatFailedTakesOne(t *testing.T) {
	a, b, _, dir := three(t)
	p := runAs(t, dir, func(c *Config) {
		through(2*time.Second, a, b)(c)
		c.UnchangedEvery.Duration = time.Minute
	})
	a.answers(hangs)
	p.offer("1")
	for n := range restWrites {
		p.waitFor(t, Success, n+1)
		p.offer("1")
	}
	p.waitFor(t, Success, restWrites+1)
	a.answers(nil)
	a.next(t) // the unanswered first write
	p.offer("1")
	a.next(t)
	p.waitFor(t, Success, restWrites+2)
	p.taken(t, contract.Entry{KeyID: "1", Status: contract.Healthy})
	p.offer("2")
	if got := a.next(t).keyIDs[0]; got != "2" {
		t.Errorf("key %s is written without a change", got)
	}
}

func TestWithoutUnchangedEveryEachResultIsWrittenWithItsInterval(t *testing.T) {
	s, p := unchangedEvery(t, 0)
	for range 3 {
		p.taken(t, contract.Entry{KeyID: "1", Status: contract.Healthy, LastChecked: noon, Interval: 7 * time.Second})
		if got := s.next(t).entries[0].Interval; got != 7*time.Second {
			t.Errorf("the interval is %s", got)
		}
	}
}
