package informers

import (
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kms-health/kms-health/test/harness/must"
)

// within is how much longer than its delay a backoff may wait.
func within(d time.Duration) time.Duration {
	return d + time.Duration(float64(d)*backoff.Jitter) + time.Millisecond
}

// gaps returns the times between lists.
func gaps(at []time.Duration) (all []time.Duration) {
	for i := range at[1:] {
		all = append(all, at[i+1]-at[i])
	}
	return all
}

func TestFailedListsBackOffAndRecover(t *testing.T) {
	for name, failure := range map[string]error{"unreachable": errUnreachable, "rejected": errRefused} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.answers(failure)
				s, _, _ := f.run()
				f.until(time.Minute)
				delay := backoff.Duration
				for i, gap := range gaps(f.listed()) {
					if gap < delay || gap > within(delay) {
						t.Errorf("list %d is %s after the one before, want %s", i+2, gap, delay)
					}
					delay = min(backoff.Cap, 2*delay)
				}
				if delay != backoff.Cap {
					t.Errorf("listed %d times in a minute", len(f.listed()))
				}
				if s.HasSynced() || s.Err() == nil {
					t.Errorf("known %v, %v", s.HasSynced(), s.Err())
				}
				f.create("a", "1")
				f.answers(nil)
				f.until(time.Minute + within(backoff.Cap))
				if x, ok := s.Get("ns", "a"); !ok || x != "1" || !s.HasSynced() || s.Err() != nil {
					t.Errorf("%q, known %v, %v", x, s.HasSynced(), s.Err())
				}
			})
		})
	}
}

// An answer of 429 to a watch, as for Secrets that cannot be decrypted, must not make the backoff longer.
func TestWatchThatIsRejectedIsTriedAgainSoon(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s, _, _ := f.run()
		f.until(10 * time.Second)
		f.answers(apierrors.NewTooManyRequests("undecryptable", 1))
		f.until(2 * time.Minute)
		if s.Err() == nil {
			t.Error("rejected, and there is no error")
		}
		f.answers(nil)
		f.until(2*time.Minute + within(backoff.Cap))
		f.create("a", "1")
		if x, _ := s.Get("ns", "a"); x != "1" || s.Err() != nil {
			t.Errorf("%q, %v", x, s.Err())
		}
	})
}

func TestSourceEndsAtOnceWhileItWaitsForAnotherList(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.answers(errRefused)
		_, _, end := f.run()
		f.until(time.Minute)
		before := time.Now()
		end()
		f.running.Wait()
		if took := time.Since(before); took > 0 {
			t.Errorf("it took %s", took)
		}
	})
}

// This happens for Secrets while the plugin that encrypts them is unhealthy.
func TestObjectsStayKnownWhileListsAreRejected(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.create("a", "1")
		s, w, _ := f.run()
		w.count()
		f.until(10 * time.Second) // client-go treats a shorter watch as a failure
		f.answers(errRefused)
		f.until(time.Minute)
		if x, ok := s.Get("ns", "a"); !ok || x != "1" || !s.HasSynced() || s.Err() == nil {
			t.Errorf("%q, known %v, %v", x, s.HasSynced(), s.Err())
		}
		if n := w.count(); n != 1 {
			t.Errorf("%d wakes by the rejected lists", n)
		}
		f.answers(nil)
		f.until(time.Minute + within(backoff.Cap) + time.Second)
		if s.Err() != nil || w.count() == 0 {
			t.Errorf("lists succeed again, and the error is %v", s.Err())
		}
	})
}

func TestKindThatIsNotServedHasNoObjects(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.create("a", "1")
		f.answers(errNotServed)
		s, w, _ := f.run()
		if n := w.count(); n != 1 || !s.HasSynced() || s.Err() != nil || len(s.List()) > 0 {
			t.Errorf("%d wakes, known %v, %v, %q", n, s.HasSynced(), s.Err(), s.List())
		}
		f.until(time.Minute)
		if n := w.count(); n > 0 {
			t.Errorf("%d wakes though nothing changed", n)
		}

		f.answers(nil)
		f.until(time.Minute + within(backoff.Cap))
		if x, ok := s.Get("ns", "a"); !ok || x != "1" || !s.HasSynced() || w.count() == 0 {
			t.Errorf("it is served, and the object is %q", x)
		}

		// Removing a CRD removes its objects.
		f.until(3 * time.Minute)
		f.answers(errNotServed)
		f.until(4 * time.Minute)
		_, exists := s.Get("ns", "a")
		if exists || len(s.List()) > 0 || !s.HasSynced() || s.Err() != nil || w.count() == 0 {
			t.Errorf("removed, and known %v, %v, %q", s.HasSynced(), s.Err(), s.List())
		}
	})
}

func TestObjectDeletedBetweenTwoWatchesIsRemoved(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.create("a", "1")
		s, _, _ := f.run()
		f.until(10 * time.Second)
		f.answers(errUnreachable)
		must.Succeed(t, f.client.Tracker().Delete(configMaps, "ns", "a"))
		f.create("b", "2")
		f.until(15 * time.Second)
		// The API server no longer has the informer's resourceVersion.
		f.answers(apierrors.NewResourceExpired("too old resource version"), nil)
		f.until(30 * time.Second)
		if got := s.List(); len(got) != 1 || got[0] != "2" || s.Err() != nil {
			t.Errorf("%q, %v", got, s.Err())
		}
	})
}

func TestChangeOfTheKeptValueWakes(t *testing.T) {
	withFixture(t, func(f *fixture) {
		filtered := &wakes{}
		s, w, _ := f.run(handler[string]{
			Key: Key{Queue: filtered}, matters: func(before, after string) bool { return after == "3" && before == "2" },
		})
		if n := w.count(); n == 0 || !s.HasSynced() {
			t.Errorf("%d wakes by an empty list, known %v", n, s.HasSynced())
		}
		filtered.count()
		want := func(by string, all, some int64) {
			t.Helper()
			if n, m := w.count(), filtered.count(); n != all || m != some {
				t.Errorf("%d and %d wakes by %s, want %d and %d", n, m, by, all, some)
			}
		}
		f.create("a", "1")
		want("an object", 1, 1)
		f.update("1", "2")
		want("a change of what is not kept", 0, 0)
		f.update("2", "3")
		want("a change that only one is for", 1, 0)
		f.update("3", "4")
		want("a change that both are for", 1, 1)
		must.Succeed(t, f.client.Tracker().Delete(configMaps, "ns", "a"))
		want("a deletion", 1, 1)
		if len(s.List()) > 0 {
			t.Errorf("%q", s.List())
		}
	})
}

func TestSelectionIsWhatIsListed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := New(f.client, Selection{Resource: configMaps, Namespace: "ns", Name: "a", Labels: "x=y"}, data)
		f.running.Go(func() { s.Run(f.ctx) })
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.chosen) != 1 || f.chosen[0].Fields.String() != "metadata.name=a" || f.chosen[0].Labels.String() != "x=y" {
			t.Errorf("%+v", f.chosen)
		}
	})
}

func TestWholeObjectHasNoHistory(t *testing.T) {
	o := configMap("a", "1", "1")
	o.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "x"}}
	if got := whole(o); len(got.GetManagedFields()) > 0 || data(got) != "1" {
		t.Errorf("%v", got)
	}
}

// An API server that has just started denies for some seconds what it will allow.
func TestProblemIsADenialThatLastsOrAFailureBeforeTheFirstList(t *testing.T) {
	denied := apierrors.NewForbidden(configMaps.GroupResource(), "", nil)
	for name, c := range map[string]struct {
		err        error
		read, want bool
	}{
		"denied":                        {denied, true, true},
		"denied before the first list":  {denied, false, true},
		"rejected":                      {errRefused, true, false},
		"rejected before the first one": {errRefused, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				began := time.Minute
				if !c.read {
					began = 0
					f.answers(c.err)
				}
				s, w, _ := f.run()
				f.until(began)
				f.answers(c.err)
				f.until(began + AuthorizerWarmup/2)
				if w.count(); s.Problem() != nil {
					t.Errorf("at once: %v", s.Problem())
				}
				f.until(began + AuthorizerWarmup + within(backoff.Cap))
				if got, woke := s.Problem() != nil, w.count() > 0; got != c.want || woke != c.want {
					t.Errorf("got %v, which enqueued %v; want %v", s.Problem(), woke, c.want)
				}
				f.answers(nil)
				if f.until(began + time.Minute); s.Problem() != nil || w.count() == 0 {
					t.Errorf("after its end: %v", s.Problem())
				}
			})
		})
	}
}
