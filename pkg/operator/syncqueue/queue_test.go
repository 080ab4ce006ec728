package syncqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestWhatFailedComesBackUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(clock.RealClock{}, "try")
		defer q.ShutDown()
		for wait := FirstRetry; wait < 4*LastRetry; wait *= 2 {
			q.Observe("a", errors.New("failed"))
			if left := q.Left("a"); left != min(wait, LastRetry) {
				t.Fatalf("got %s left, want %s", left, min(wait, LastRetry))
			}
			if name, _ := q.Get(); name != "a" {
				t.Fatal(name)
			}
			q.Done("a")
		}
		q.Observe("a", nil)
		if left := q.Left("a"); left != 0 || q.Len() != 0 {
			t.Errorf("after a success: %s left, %d in the queue", left, q.Len())
		}
	})
}

func TestPanicIsRetriedAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(clock.RealClock{}, "try")
		synced := map[string]int{}
		ctx, cancel := context.WithCancel(t.Context())
		q.Enqueue("a")
		q.Enqueue("b")
		go func() {
			time.Sleep(time.Minute)
			cancel()
		}()
		q.Work(ctx, 1, func(_ context.Context, name string) time.Duration {
			if synced[name]++; name == "a" && synced[name] < 3 {
				panic("a defect")
			}
			q.Observe(name, nil)
			return 0
		})
		if synced["a"] != 3 || synced["b"] != 1 || q.Left("a") != 0 {
			t.Errorf("got %v, want 3 syncs of a and one of b", synced)
		}
	})
}
