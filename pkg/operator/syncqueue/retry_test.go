package syncqueue

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
		if left := q.Left("a"); left > 4*time.Millisecond {
			t.Fatal(left)
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
}
