package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/applybody"
	"github.com/kms-health/kms-health/pkg/contract"
)

const (
	// lag is how long a watch may take to show what was written.
	lag = time.Second
	// remembered is for how long a deletion is known that no watch shows.
	remembered = time.Hour
)

// applier writes the operator's objects by Server-Side Apply under the field manager contract.OperatorName, and only
// when there is something to write: an object that was applied, and has not changed since, is
// left alone, however often it is looked at. Pods are created, and only their metadata is
// written again. Several goroutines may use it, each for objects of its own.
type applier struct {
	client dynamic.Interface
	clock  clock.PassiveClock

	mu      sync.Mutex
	applied map[string]record
	deleted map[types.UID]time.Time // when the API server accepted a deletion
}

// record is what is known of an object that was applied.
type record struct {
	desired string    // hash of what was sent
	live    string    // mark of what came of it
	version string    // resourceVersion of that
	at      time.Time // when
}

// mark changes with every change of an object that matters: the generation of one whose status or
// metadata others write, by right; else the version, so that a user who adds a subject to a
// binding of ours has changed it.
func mark(o *unstructured.Unstructured) string {
	if generation := o.GetGeneration(); generation > 0 {
		return fmt.Sprintf("%s generation %d", o.GetUID(), generation)
	}
	return o.GetResourceVersion()
}

// newApplier makes an applier.
func newApplier(client dynamic.Interface, clock clock.PassiveClock) *applier {
	return &applier{client: client, clock: clock, applied: map[string]record{}, deleted: map[types.UID]time.Time{}}
}

// written of Apply.
type written string

const (
	// unchanged: nothing was sent, or it made no difference.
	unchanged written = "unchanged"
	// applied: it was sent, and made a difference.
	applied written = "applied"
	// lagging: it was sent a moment ago, and the watch does not show it yet. Look
	// again in a second.
	lagging written = "lagging"
)

// Apply makes an object what it should be. live is what the watch last showed of
// it, nil where it showed none. The result is nil where nothing was sent.
func (a *applier) Apply(ctx context.Context, desired, live *unstructured.Unstructured) (written,
	*unstructured.Unstructured, error) {
	if desired.GetKind() == "Pod" {
		return a.applyPod(ctx, desired, live)
	}
	key := Key(desired)
	raw, err := applybody.Marshal(desired.Object)
	if err != nil {
		return "", nil, fmt.Errorf("apply %s: %w", key, err)
	}
	hash := contract.FileHash(raw)
	r, known := a.last(key)
	if known && r.desired == hash {
		if live != nil && mark(live) == r.live {
			return unchanged, nil, nil
		}
		if a.clock.Since(r.at) < lag {
			return lagging, nil, nil
		}
	}
	force := true
	result, err := a.resource(desired).Patch(ctx, desired.GetName(), types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: contract.OperatorName, Force: &force})
	if err != nil {
		return "", nil, fmt.Errorf("apply %s: %w", key, err)
	}
	outcome, version := applied, result.GetResourceVersion()
	// An apply that changes nothing makes no new version, of what the watch shows or of
	// what the last apply made.
	if live != nil && live.GetUID() == result.GetUID() && live.GetResourceVersion() == version || known &&
		r.version == version {
		outcome = unchanged
	}
	a.remember(key, record{desired: hash, live: mark(result), version: version})
	return outcome, result, nil
}

func (a *applier) last(key string) (r record, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, known = a.applied[key]
	return r, known
}

func (a *applier) remember(key string, r record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.at = a.clock.Now()
	a.applied[key] = r
}

// applyPod creates a pod, or patches the metadata of one that exists. A spec is written once:
// admission may change it at creation, and writing it again is then refused for as long as
// the pod lives. A pod that should have another spec has another name.
func (a *applier) applyPod(ctx context.Context, desired, live *unstructured.Unstructured) (written,
	*unstructured.Unstructured, error) {
	key := Key(desired)
	if live == nil {
		if r, known := a.last(key); known && a.clock.Since(r.at) < lag {
			return lagging, nil, nil
		}
		result, err := a.resource(desired).Create(ctx, desired, metav1.CreateOptions{FieldManager: contract.OperatorName})
		if err == nil {
			a.remember(key, record{version: result.GetResourceVersion()})
			return applied, result, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", nil, fmt.Errorf("create %s: %w", key, err)
		}
		// No watch shows it, for example since a label that selects it was removed.
		live = &unstructured.Unstructured{Object: map[string]any{}}
	}
	part := metadataPatch(desired, live)
	if len(part) == 0 {
		return unchanged, nil, nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": part})
	if err != nil {
		return "", nil, fmt.Errorf("patch %s: %w", key, err)
	}
	options := metav1.PatchOptions{FieldManager: contract.OperatorName}
	result, err := a.resource(desired).Patch(ctx, desired.GetName(), types.MergePatchType, raw, options)
	if err != nil {
		return "", nil, fmt.Errorf("patch %s: %w", key, err)
	}
	return applied, result, nil
}

// metadataPatch is what the metadata of a live pod lacks of the desired one's; nil: nothing.
func metadataPatch(desired, live *unstructured.Unstructured) map[string]any {
	part := map[string]any{}
	if missing := lacking(desired.GetLabels(), live.GetLabels()); len(missing) > 0 {
		part["labels"] = missing
	}
	if missing := lacking(desired.GetAnnotations(), live.GetAnnotations()); len(missing) > 0 {
		part["annotations"] = missing
	}
	sameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	if owners := desired.GetOwnerReferences(); !slices.EqualFunc(owners, live.GetOwnerReferences(), sameOwner) {
		part["ownerReferences"] = owners
	}
	if uid := live.GetUID(); len(part) > 0 && uid != "" {
		part["uid"] = uid // not of another pod that has the name by now
	}
	return part
}

// lacking are the entries of a map that another one does not have so.
func lacking(desired, live map[string]string) map[string]string {
	missing := maps.Clone(desired)
	maps.DeleteFunc(missing, func(key, value string) bool { is, exists := live[key]; return exists && is == value })
	return missing
}

// Delete removes an object that a watch showed, and no other of its name, and reports
// whether it did. One that is deleted, or being deleted, is not changed.
func (a *applier) Delete(ctx context.Context, live *unstructured.Unstructured) (deleted bool, err error) {
	key := Key(live)
	a.mu.Lock()
	delete(a.applied, key)
	a.mu.Unlock()
	if live.GetDeletionTimestamp() != nil {
		return false, nil
	}
	uid := live.GetUID()
	background := metav1.DeletePropagationBackground
	err = a.resource(live).Delete(ctx, live.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete %s: %w", key, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	maps.DeleteFunc(a.deleted, func(_ types.UID, at time.Time) bool { return now.Sub(at) > remembered })
	_, before := a.deleted[uid]
	a.deleted[uid] = now
	return !before, nil // it was being deleted already, which the watch does not show yet
}

func (a *applier) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	return a.client.Resource(ResourceOf(o)).Namespace(o.GetNamespace())
}

// ResourceOf is the resource of an object that the operator writes.
func ResourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return plural
}

// Key names an object, for people too.
func Key(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// Shows reports whether a version of an object is at least as new as one that was written.
func Shows(version, written string) bool {
	order, err := resourceversion.CompareResourceVersion(version, written)
	return err != nil || order >= 0
}
