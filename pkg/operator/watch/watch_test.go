package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// atMost is how long the reflector waits by itself: the backoff's cap, with jitter.
const atMost = 1200 * time.Millisecond

// gaps are the times between lists.
func gaps(at []time.Duration) (all []time.Duration) {
	for i := range at[1:] {
		all = append(all, at[i+1]-at[i])
	}
	return all
}

func TestAnAPIServerThatIsAwayIsAskedAgainSoon(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answers(func() error { return errors.New("connection refused") })
		source := s.look(s.viewer(), all)
		s.until(time.Minute)
		at := s.listed()
		if len(at) < 40 {
			t.Errorf("asked %d times in a minute", len(at))
		}
		for i, gap := range gaps(at) {
			if gap > atMost || gap < 250*time.Millisecond {
				t.Errorf("try %d is %s after the one before", i+2, gap)
			}
		}
		if source.Known() || source.Err() == nil {
			t.Errorf("known %v, %v", source.Known(), source.Err())
		}
		s.create("a", "1")
		s.answers(func() error { return nil })
		s.until(time.Minute + atMost)
		if x, ok := source.Get("ns", "a"); !ok || x != "1" || source.Err() != nil {
			t.Errorf("%q, %v", x, source.Err())
		}
	})
}

func TestAnAPIServerThatRefusesIsAskedEverLess(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answers(refused)
		s.look(s.viewer(), all)
		s.until(3 * time.Minute)
		patience := firstPatience
		for i, gap := range gaps(s.listed()) {
			if gap < patience || gap > patience+atMost {
				t.Errorf("try %d is %s after the one before, want %s and little more", i+2, gap, patience)
			}
			patience = min(lastPatience, 2*patience)
		}
		if patience != lastPatience {
			t.Errorf("asked %d times in 3 minutes", len(s.listed()))
		}

		// When it was away meanwhile, it may be another one that comes back.
		n := len(s.listed())
		s.answers(func() error { return errors.New("connection refused") })
		s.until(3*time.Minute + lastPatience + 2*atMost)
		away := len(s.listed())
		if away < n+2 {
			t.Fatalf("asked %d times while it is away", away-n)
		}
		s.answers(refused)
		s.until(4 * time.Minute)
		again := gaps(s.listed()[away:])
		if again[0] > firstPatience+atMost || again[1] > 2*firstPatience+atMost {
			t.Errorf("asked again after %v", again)
		}
	})
}

// Patience ends with success, too.
func TestPatienceBeginsAnewAfterAnAnswer(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answers(refused)
		source := s.look(s.viewer(), all)
		s.until(time.Minute)
		s.answers(func() error { return nil })
		s.until(time.Minute + lastPatience + 2*atMost)
		if !source.Known() {
			t.Fatal("it is not known")
		}
		n := len(s.listed())
		s.until(2 * time.Minute)
		s.answers(refused)
		s.until(3 * time.Minute)
		again := gaps(s.listed()[n:])
		if again[0] > firstPatience+atMost || again[1] > 2*firstPatience+atMost {
			t.Errorf("asked again after %v", again)
		}
	})
}

// Nobody waits for a source that waits.
func TestASourceEndsAlsoWhileItIsPatient(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answers(refused)
		v := s.viewer()
		s.look(v, all)
		s.until(time.Minute)
		s.look(v)
		before := time.Now()
		s.Wait()
		if took := time.Since(before); took > 0 {
			t.Errorf("it took %s", took)
		}
	})
}

// As Secrets are while their plugin is ill.
func TestWhatWasKnownStaysWhileListsAreRefused(t *testing.T) {
	onStage(t, func(s *stage) {
		s.create("a", "1")
		v := s.viewer()
		source := s.look(v, all)
		synctest.Wait()
		v.woken()
		s.until(10 * time.Second) // a watch that is shorter would be a failure of its own
		s.answers(refused)
		s.until(time.Minute)
		if x, ok := source.Get("ns", "a"); !ok || x != "1" || !source.Known() || source.Err() == nil {
			t.Errorf("%q, known %v, %v", x, source.Known(), source.Err())
		}
		if n := v.woken(); n != 1 {
			t.Errorf("woken %d times by the refusals", n)
		}
		s.answers(func() error { return nil })
		s.until(time.Minute + lastPatience + 2*atMost)
		if source.Err() != nil || v.woken() == 0 {
			t.Errorf("it works again, and %v", source.Err())
		}
	})
}

// A kind that is not served is known to have no objects.
func TestAKindThatIsNotServedIsKnown(t *testing.T) {
	onStage(t, func(s *stage) {
		s.create("a", "1")
		s.answers(notServed)
		v := s.viewer()
		source := s.look(v, all)
		if n := v.woken(); n != 1 || !source.Known() || source.Err() != nil || len(source.All()) > 0 {
			t.Errorf("woken %d times, known %v, %v, %q", n, source.Known(), source.Err(), source.All())
		}
		s.until(time.Minute)
		if n := v.woken(); n > 0 {
			t.Errorf("woken %d times though it stays so", n)
		}

		s.answers(func() error { return nil })
		s.until(time.Minute + lastPatience + 2*atMost)
		if x, ok := source.Get("ns", "a"); !ok || x != "1" || !source.Known() || v.woken() == 0 {
			t.Errorf("served, and %q", x)
		}

		// A CRD that is removed takes its objects along.
		s.until(2 * time.Minute)
		s.answers(notServed)
		s.until(3 * time.Minute)
		if len(source.All()) > 0 || !source.Known() || source.Err() != nil || v.woken() == 0 {
			t.Errorf("removed, and known %v, %v, %q", source.Known(), source.Err(), source.All())
		}
	})
}

// What went while there was no watch is gone.
func TestAnOutOfDateWatchIsListedAnew(t *testing.T) {
	onStage(t, func(s *stage) {
		s.create("a", "1")
		source := s.look(s.viewer(), all)
		s.until(10 * time.Second)
		if err := s.client.Tracker().Delete(configMaps, "ns", "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		failed := false
		s.answers(func() error { // once
			if failed {
				return nil
			}
			failed = true
			return errors.New("gone")
		})
		s.create("b", "2")
		s.until(20 * time.Second)
		if got := source.All(); len(got) != 1 || got[0] != "2" {
			t.Errorf("%q", got)
		}
	})
}

func TestWholeKeepsNoHistory(t *testing.T) {
	o := configMap("a", "1", "1")
	o.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "x"}}
	if got := Whole(o); len(got.GetManagedFields()) > 0 || data(got) != "1" {
		t.Errorf("%v", got)
	}
}

// What is no object of an API is passed over.
func TestWhatIsNoObjectIsPassedOver(t *testing.T) {
	changes := 0
	s := &Source[string]{convert: data, changed: func() { changes++ }, items: map[string]string{}}
	for _, err := range []error{s.Add("x"), s.Update(nil), s.Delete(context.Canceled), s.Resync()} {
		if err != nil {
			t.Error(err)
		}
	}
	if changes > 0 || len(s.All()) > 0 {
		t.Errorf("%d changes, %q", changes, s.All())
	}
	if err := s.Replace([]any{"x", configMap("a", "1", "1"), 1}, "1"); err != nil || len(s.All()) != 1 {
		t.Errorf("%v, %q", err, s.All())
	}
}
