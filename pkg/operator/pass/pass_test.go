package pass

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// Under synctest time passes when all wait.
func TestPassesComeWhenDueAndWhenAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settle = 20 * time.Millisecond
		loop := NewLoop(clock.RealClock{}, settle)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			loop.Run(ctx, func(context.Context) time.Duration {
				at = append(at, time.Since(began))
				return time.Minute
			})
		}()
		time.Sleep(10 * time.Second)
		for range 5 { // a burst is one pass
			loop.Wake()
		}
		time.Sleep(80 * time.Second)
		cancel()
		<-done
		want := []time.Duration{0, 10*time.Second + settle, 70*time.Second + settle}
		if len(at) != len(want) {
			t.Fatalf("passes at %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("pass %d at %s, want %s", i, at[i], want[i])
			}
		}
	})
}

func TestRetriesComeLaterEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRetries(clock.RealClock{}, time.Second, 5*time.Second)
		if _, waiting := r.Waiting("a"); waiting || r.Done("a") {
			t.Error("nothing has failed yet")
		}
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
			until, news := r.Failed("a", errors.New("x"))
			if got := time.Until(until); got != want || news != (i == 0) {
				t.Errorf("try %d: again in %s, want %s; news: %v", i, got, want, news)
			}
		}
		if _, waiting := r.Waiting("a"); !waiting {
			t.Error("it does not wait")
		}
		if _, waiting := r.Waiting("b"); waiting {
			t.Error("another waits")
		}
		time.Sleep(5 * time.Second)
		if _, waiting := r.Waiting("a"); waiting {
			t.Error("it waits too long")
		}
		if _, news := r.Failed("a", errors.New("y")); !news {
			t.Error("another reason is no news")
		}
		if !r.Done("a") || r.Done("a") {
			t.Error("it is done once")
		}
		if until, _ := r.Failed("a", errors.New("y")); time.Until(until) != time.Second {
			t.Error("it does not begin anew")
		}
	})
}
