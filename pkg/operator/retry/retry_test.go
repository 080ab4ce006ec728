package retry

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestDelaysGrowUntilATrySucceeds(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	b := New(clock, time.Second, 3*time.Second, "try", "key")
	failed := errors.New("failed")
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if got := b.Observe("a", failed); got != want || b.Left("a") != want {
			t.Errorf("try %d: delay %s, left %s, want %s", i, got, b.Left("a"), want)
		}
	}
	clock.SetTime(clock.Now().Add(2 * time.Second))
	if left := b.Left("a"); left != time.Second {
		t.Errorf("left %s", left)
	}
	if left := b.Left("b"); left != 0 {
		t.Errorf("of another key: left %s", left)
	}
	if got := b.Observe("a", nil); got != 0 || b.Left("a") != 0 {
		t.Errorf("after a success: delay %s, left %s", got, b.Left("a"))
	}
	if got := b.Observe("a", failed); got != time.Second {
		t.Errorf("the first delay after a success is %s", got)
	}
	b.Forget("a")
	if left := b.Left("a"); left != 0 {
		t.Errorf("of a forgotten key: left %s", left)
	}
}
