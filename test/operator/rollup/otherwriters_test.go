//go:build integration

package rollup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

// otherPrefix begins the field managers of the other writers, and the types of their
// conditions.
const otherPrefix = "Other"

// others are writers of conditions on one operator resource, as OpenShift's operators are:
// some apply their own conditions, some update the whole status from an old read, some add
// and remove conditions.
type others struct {
	resource  dynamic.ResourceInterface
	server    apiservers.Server
	writes    atomic.Int64
	conflicts atomic.Int64
	stop      func()

	mu     sync.Mutex
	failed []string
}

// Of the writers there are 8. Each writes once in this time, so all of them 4 times a second:
// more would leave an update from an old read no chance on a busy machine.
const everyOther = 2 * time.Second

// fifty are the conditions of all writers together.
const fifty = 50

// startOthers starts writers with fifty conditions, until stop or the end of the test.
func startOthers(t *testing.T, server apiservers.Server) *others {
	t.Helper()
	o := &others{server: server, resource: fixture.Client.Resource(controlplane.OperatorGVR(server.Resource))}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	start := func(index int, write func(ctx context.Context, number int) error) {
		running.Go(func() {
			time.Sleep(everyOther * time.Duration(index) / 8)
			for number := 1; ; number++ {
				// What the API server does not answer in its time, or not at once, is repeated by the next.
				if err := write(ctx, number); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsTimeout(err) {
					o.fail("writer %d: %v", index, err)
				}
				o.writes.Add(1)
				select {
				case <-ctx.Done():
					return
				case <-time.After(everyOther): // after the answer: a busy API server is asked less often
				}
			}
		})
	}
	// Each updater writes once before there are others: on a busy machine an update may have only
	// conflicts.
	for i := range 3 {
		if err := o.update(t.Context(), fmt.Sprintf("%sUpdate%d", otherPrefix, i), 8, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		manager := fmt.Sprintf("%sApply%d", otherPrefix, i)
		start(i, func(ctx context.Context, number int) error { return o.apply(ctx, manager, 5, number) })
	}
	for i := range 3 {
		manager := fmt.Sprintf("%sUpdate%d", otherPrefix, i)
		start(4+i, func(ctx context.Context, number int) error { return o.update(ctx, manager, 8, number) })
	}
	start(7, func(ctx context.Context, number int) error {
		return o.apply(ctx, otherPrefix+"Changing", 6-number%4, number)
	})
	o.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(func() {
		o.stop()
		o.remove(t)
	})
	return o
}

func (o *others) fail(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failed) < 10 {
		o.failed = append(o.failed, fmt.Sprintf(format, args...))
	}
}

// conditionsOf are a manager's. Their message has the number of the write.
func conditionsOf(manager string, count, number int) []any {
	var all []any
	for i := range count {
		all = append(all, map[string]any{
			"type": fmt.Sprintf("%s%dDegraded", manager, i), "status": "False", "reason": "AsExpected",
			"message": fmt.Sprint(number), "lastTransitionTime": "2026-01-01T00:00:00Z",
		})
	}
	return all
}

func (o *others) apply(ctx context.Context, manager string, count, number int) error {
	return apiservers.Apply(ctx, fixture.Client, manager, controlplane.OperatorGVR(o.server.Resource), "", o.server.Status(conditionsOf(manager, count, number)...), "status")
}

// update writes the whole status, read a while before, as library-go's UpdateStatus does
// from its informer's cache; after a conflict, read just now.
func (o *others) update(ctx context.Context, manager string, count, number int) error {
	read, err := o.resource.Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		own := conditionsOf(manager, count, number)
		setConditions(read, append(conditionsBut(read, manager), own...))
		_, err := o.resource.UpdateStatus(ctx, read, metav1.UpdateOptions{FieldManager: manager})
		if apierrors.IsConflict(err) {
			o.conflicts.Add(1)
			if now, err := o.resource.Get(ctx, controlplane.ClusterObject, metav1.GetOptions{}); err == nil {
				read = now
			}
		}
		return err
	})
}

// conditionsBut are those whose types do not have a prefix.
func conditionsBut(o *unstructured.Unstructured, prefix string) (kept []any) {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if !strings.HasPrefix(fmt.Sprint(c.(map[string]any)["type"]), prefix) {
			kept = append(kept, c)
		}
	}
	return kept
}

func setConditions(o *unstructured.Unstructured, conditions []any) {
	_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
}

// replaceAll replaces all conditions, whatever they are now: a merge patch without a
// resourceVersion, as of a client that read them some time before.
func (o *others) replaceAll(t *testing.T, conditions []any) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		t.Fatal(err)
	}
	write := func() error {
		_, err := o.resource.Patch(t.Context(), controlplane.ClusterObject, types.MergePatchType, raw,
			metav1.PatchOptions{FieldManager: otherPrefix + "Stale"}, "status")
		return err
	}
	if err := retry.OnError(retry.DefaultBackoff, apierrors.IsTimeout, write); err != nil {
		t.Fatal(err)
	}
}

// remove removes the conditions of all other writers.
func (o *others) remove(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), fixture.Timeout)
	defer cancel()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := o.resource.Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
		if err != nil {
			return err
		}
		setConditions(now, conditionsBut(now, otherPrefix))
		_, err = o.resource.UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Errorf("remove the other writers' conditions: %v", err)
	}
}
