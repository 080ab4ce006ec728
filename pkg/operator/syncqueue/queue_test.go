package syncqueue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// A line in the log for each try would be thousands a day: an error may have a port, a time or an ID.
func TestWhatFailedComesBackUntilItSucceeds(t *testing.T) {
	defer klog.CaptureState().Restore()
	lines := 0
	klog.SetLogger(funcr.New(func(_, _ string) { lines++ }, funcr.Options{}))
	synctest.Test(t, func(t *testing.T) {
		q := New("try")
		defer q.ShutDown()
		for wait := FirstRetry; wait < 4*LastRetry; wait *= 2 {
			q.Observe("a", fmt.Errorf("certificate has expired: current time %s is after 2026", time.Now()))
			if left := q.Left("a"); left != min(wait, LastRetry) {
				t.Fatalf("got %s left, want %s", left, min(wait, LastRetry))
			}
			if name, _ := q.Get(); name != "a" {
				t.Fatal(name)
			}
			q.Done("a")
		}
		q.Observe("a", nil)
		if left := q.Left("a"); left != 0 || q.Len() != 0 || lines != 2 {
			t.Errorf("after a success: %s left, %d in the queue, %d lines in the log", left, q.Len(), lines)
		}
	})
}

func TestPanicIsRetriedAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New("try")
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
