package publish

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/kms-health/kms-health/pkg/health"
)

func TestInItsTurnTheLatestIsWrittenWithTheNewestCredentials(t *testing.T) {
	s := newServer(t)
	dir, turn := credentialFiles(t, s), make(chan struct{}, 1)
	turn <- struct{}{} // the other form writes
	p := runAs(t, dir, func(c *Config) { c.Turn = turn })
	p.offer("1")
	for len(p.offered) > 0 { // until the publisher waits for its turn
		time.Sleep(time.Millisecond)
	}
	const wait = 300 * time.Millisecond
	time.Sleep(wait)
	p.offer("2")
	write(t, dir+"/token", "second")
	<-turn
	if got := s.next(t); got.keyIDs[0] != "2" || got.token != "Bearer second" {
		t.Errorf("wrote %v with %q", got.keyIDs, got.token)
	}
	p.waitFor(t, Success, 1)
	var m dto.Metric
	if err := p.metrics.duration.WithLabelValues("Condition").(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	if sum := time.Duration(m.Histogram.GetSampleSum() * float64(time.Second)); m.Histogram.GetSampleCount() != 1 || sum >= wait {
		t.Errorf("%d writes took %s together, of which %s were the wait", m.Histogram.GetSampleCount(), sum, wait)
	}
}

func TestOfferThatIsWithdrawnBeforeItsTurnIsNotWritten(t *testing.T) {
	s := newServer(t)
	dir, turn := credentialFiles(t, s), make(chan struct{}, 1)
	turn <- struct{}{}
	p := runAs(t, dir, func(c *Config) { c.Turn = turn })
	p.offer("1")
	for len(p.offered) > 0 {
		time.Sleep(time.Millisecond)
	}
	p.Offer(nil)
	<-turn
	p.offer("2")
	if got := s.next(t); got.keyIDs[0] != "2" {
		t.Errorf("wrote %v", got.keyIDs)
	}
	p.waitFor(t, Success, 1)
	if n := testutil.CollectAndCount(p.metrics.writes); n != 1 || len(s.requests) != 0 {
		t.Errorf("%d results, %d more requests", n, len(s.requests))
	}
}

func TestTypedFormHasNoEntryBeforeAKeyIDIsKnown(t *testing.T) {
	s := newServer(t)
	p := runAs(t, credentialFiles(t, s), func(c *Config) { c.Form = HealthReports })
	entry := func(keyID, kekID string) health.Entry {
		return health.Entry{KeyID: keyID, KEKID: kekID, Status: health.Error, LastChecked: noon}
	}
	p.Offer([]Observation{{Entry: entry("1", "")}, {Entry: entry("2", "")}})
	p.Offer([]Observation{{Entry: entry("1", "")}, {Entry: entry("2", ""), LastKEKID: "was"}, {Entry: entry("3", "is")}})
	if got := s.next(t); len(got.keyIDs) != 2 || got.keyIDs[0] != "2" || got.keyIDs[1] != "3" {
		t.Errorf("wrote %v", got.keyIDs)
	}
	p.Offer([]Observation{{Entry: entry("1", "")}})
	p.Offer([]Observation{{Entry: entry("3", "is")}})
	if got := s.next(t); len(got.keyIDs) != 1 || got.keyIDs[0] != "3" {
		t.Errorf("wrote %v", got.keyIDs)
	}
}

// A system call on a file system that hangs does not return. Here a function that the
// publisher calls blocks instead.
func TestStatusShowsAWriteThatHasNoResult(t *testing.T) {
	s := newServer(t)
	turn, release := make(chan struct{}, 1), make(chan struct{})
	since := func() time.Time { <-release; return noon }
	for name, tt := range map[string]struct {
		change func(*Config)
		free   func()
	}{
		"within itself":         {func(c *Config) { c.Since = since }, func() { close(release) }},
		"within the other form": {func(c *Config) { c.Turn = turn; turn <- struct{}{} }, func() { <-turn }},
	} {
		t.Run(name, func(t *testing.T) {
			const timeout = 200 * time.Millisecond
			p := runAs(t, credentialFiles(t, s), func(c *Config) { c.Timeout = timeout; tt.change(c) })
			free := sync.OnceFunc(tt.free)
			t.Cleanup(free)
			began := time.Now()
			p.offer("1")
			p.statusBecomes(t, "an error", func(s Status) bool { return s.LastError != "" })
			if after := time.Since(began); after < timeout+time.Second {
				t.Errorf("shown after %s", after)
			}
			if text := p.Status().LastError; text != "a write has had no result for 1s" {
				t.Error(text)
			}
			free()
			p.waitFor(t, Success, 1)
			p.statusBecomes(t, "no error", func(s Status) bool { return s.LastError == "" })
		})
	}
}
