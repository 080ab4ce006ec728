package retry

import (
	"errors"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

func TestWhatFailedComesBackUntilItSucceeds(t *testing.T) {
	q := NewQueue(clock.RealClock{}, "try", time.Millisecond, 4*time.Millisecond)
	defer q.ShutDown()
	for range 5 {
		q.Observe("a", errors.New("failed"))
		if name, _ := q.Get(); name != "a" {
			t.Fatal(name)
		}
		q.Done("a")
	}
	q.Observe("a", nil)
	if n := q.NumRequeues("a"); n != 0 || q.Len() != 0 {
		t.Errorf("after a success: %d retries, %d in the queue", n, q.Len())
	}
}
