//go:build integration

package rollup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

const (
	// besideWhile is for how long others write.
	besideWhile = 15 * time.Second
	// besideInterval is the reporters'. On a busy machine a write takes seconds, since the API
	// server repeats it for each write of another that comes first, and a report must not become
	// stale by that.
	besideInterval = 5 * time.Second
	// otherPrefix begins the field managers of the other writers, and the types of their conditions.
	otherPrefix = "Other"
	// Of the other writers each writes once in this time: more often would leave an update from an
	// old read no chance on a busy machine.
	everyOther = 2 * time.Second
)

// Fifty conditions of other managers are written on the resource that our operator and reporters
// write to, as OpenShift's operators do: some apply their own, some update the whole status from an
// old read. Nobody loses anything; and what a client without a resourceVersion removed is restored.
func TestManyOtherWritersOnTheResource(t *testing.T) {
	op := fixture.NewOperator(t, "--leader-elect=true")
	reporters := fixture.StartReportingEvery(t, op, nil, besideInterval.String())
	resource := fixture.Client.Resource(controlplane.OperatorGVR(apiservers.Kube.Resource))
	t.Cleanup(func() { replaceConditions(t, resource, "without others", otherPrefix) })

	v := &versions{numbers: map[string]int{}}
	watching, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	fixture.WatchObject(t, apiservers.Kube, func(_ time.Time, o *unstructured.Unstructured) {
		if watching.Err() == nil {
			v.see(o)
		}
	})
	writing, stop := context.WithTimeout(t.Context(), besideWhile)
	defer stop()
	var others sync.WaitGroup
	for i := range 7 {
		others.Go(func() {
			manager, write, count := fmt.Sprintf("%sApply%d", otherPrefix, i), applyConditions, 8
			if i%2 == 1 {
				manager, write, count = fmt.Sprintf("%sUpdate%d", otherPrefix, i), updateConditions, 6
			}
			for number := 1; writing.Err() == nil; number++ {
				err := write(writing, resource, manager, conditionsOf(manager, count, number))
				// What the API server does not answer in its time, or not at once, is repeated by the next.
				if err != nil && writing.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsTimeout(err) {
					t.Errorf("%s: %v", manager, err)
				}
				time.Sleep(everyOther)
			}
		})
	}
	others.Wait()
	stopWatching()
	v.report(t)

	replaceConditions(t, resource, "without ours", "KMS")
	fixture.Eventually(t, "the operator's conditions are back", func() error {
		now := fixture.Resource(t, apiservers.Kube)
		nodes, c := fixture.NodesOf(now), now.Conditions[contract.HealthReporting]
		if len(nodes) != len(reporters) || c.Type == "" {
			return fmt.Errorf("%v report, %+v", nodes, c)
		}
		return nil
	})
	fixture.AwaitHealthy(t)
	fixture.RemoveTarget(t, op, reporters)
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

func applyConditions(ctx context.Context, _ dynamic.ResourceInterface, manager string, own []any) error {
	return apiservers.Apply(ctx, fixture.Client, manager, controlplane.OperatorGVR(apiservers.Kube.Resource), "",
		apiservers.Kube.Status(own...), "status")
}

// updateConditions writes the whole status, read a while before, as library-go's UpdateStatus does
// from its informer's cache; after a conflict, read just now.
func updateConditions(ctx context.Context, resource dynamic.ResourceInterface, manager string, own []any) error {
	age := 200 * time.Millisecond
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		read, err := resource.Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
		if err != nil {
			return err
		}
		time.Sleep(age)
		age = 0
		all := append(conditionsBut(read, manager), own...)
		if err := unstructured.SetNestedSlice(read.Object, all, "status", "conditions"); err != nil {
			return err
		}
		_, err = resource.UpdateStatus(ctx, read, metav1.UpdateOptions{FieldManager: manager})
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

// replaceConditions removes conditions with a prefix by a merge patch without a resourceVersion, as of a
// client that read the others some time before.
func replaceConditions(t *testing.T, resource dynamic.ResourceInterface, what, but string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), fixture.Timeout)
	defer cancel()
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsTimeout, func() error {
		now, err := resource.Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
		if err != nil {
			return err
		}
		raw, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditionsBut(now, but)}})
		if err != nil {
			return err
		}
		_, err = resource.Patch(ctx, controlplane.ClusterObject, types.MergePatchType, raw,
			metav1.PatchOptions{FieldManager: otherPrefix + "Stale"}, "status")
		return err
	})
	if err != nil {
		t.Errorf("write conditions %s: %v", what, err)
	}
}

// versions are what was seen of the resource, each of its versions.
type versions struct {
	mu      sync.Mutex
	numbers map[string]int // of the others' conditions
	wrong   []string
}

// see expects every condition that was ever there, the others' never with an older number, and each
// owned by its writer alone.
func (v *versions) see(o *unstructured.Unstructured) {
	v.mu.Lock()
	defer v.mu.Unlock()
	there := operatorcr.ReadConditions(o)
	for name, c := range there {
		if strings.HasPrefix(name, otherPrefix) {
			number, err := strconv.Atoi(c.Message)
			if err != nil || number < v.numbers[name] || c.Status != "False" {
				v.wrong = append(v.wrong, fmt.Sprintf("%s was written %d times: %+v", name, v.numbers[name], c))
			}
			v.numbers[name] = number
		}
	}
	wanted := []string{contract.PluginsDegraded, contract.HealthReporting, contract.WriteKeyAgreed}
	for _, node := range fixture.NodeNames {
		wanted = append(wanted, contract.ConditionType(node))
	}
	for name := range v.numbers {
		wanted = append(wanted, name)
	}
	for _, name := range wanted {
		if there[name].Type == "" {
			v.wrong = append(v.wrong, "without "+name)
		}
	}
	for _, m := range o.GetManagedFields() {
		if m.FieldsV1 == nil || m.Subresource != "status" {
			continue
		}
		for _, part := range strings.Split(string(m.FieldsV1.GetRawBytes()), `k:{\"type\":\"`)[1:] {
			name, _, _ := strings.Cut(part, `\"`)
			if strings.HasPrefix(m.Manager, "kms-health-") != strings.HasPrefix(name, "KMS") {
				v.wrong = append(v.wrong, fmt.Sprintf("%s owns a part of condition %s", m.Manager, name))
			}
		}
	}
}

// report fails the test for what was wrong.
func (v *versions) report(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	const all = 4*8 + 3*6
	slices.Sort(v.wrong)
	if wrong := slices.Compact(v.wrong); len(wrong) > 0 || len(v.numbers) != all {
		t.Errorf("%d of %d conditions of others, %d problems: %v",
			len(v.numbers), all, len(wrong), wrong[:min(len(wrong), 20)])
	}
}
